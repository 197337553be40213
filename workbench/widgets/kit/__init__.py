"""Parts that all screens share: fields, HTML, threads and notebook output."""
