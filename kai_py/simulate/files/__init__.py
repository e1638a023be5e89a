"""Objects in files, completed or refused as an API server and its controllers would."""
