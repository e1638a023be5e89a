"""kopf operators for kinds with few objects: queue status, admission."""
