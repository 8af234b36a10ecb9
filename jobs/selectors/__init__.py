"""Reading jobs. Every function takes the tenant first and opens its scope; operators' reads say so."""
