"""A specification as a form: made from the models that the API validates, so a new field needs no code here."""
