"""`puda serve`: runs as a web service with a page; needs the extra `web`."""
