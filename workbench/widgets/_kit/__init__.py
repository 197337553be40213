"""Parts that all screens share: fields, words, threads and how a notebook shows them."""
