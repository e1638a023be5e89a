"""Objects that an API server accepts and no scheduler expects, and a process to read them."""
