"""What all endpoints share: sessions, identities, errors, paging."""
