"""Node scores, one per file; a placement adds them up with weights far enough apart."""
