"""How is a patch applied? One file per patch format of the API, dispatched by content type."""
