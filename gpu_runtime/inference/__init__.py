"""Acting: predict requests of many tenants share one packed forward of the frozen base."""
