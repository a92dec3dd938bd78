"""Which features vary more than their means lead one to expect: highly variable genes, ranked as scanpy ranks them."""
