"""What would the API server reject or drop in these manifests, and what is their valid form?"""
