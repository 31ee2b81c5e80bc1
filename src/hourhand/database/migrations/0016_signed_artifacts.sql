-- Who vouches for uploaded code. The signature is kept, not only that it was right once: executors check it themselves, by the keys
-- of their own configuration, so that no row of this table makes them run what nobody signed.
ALTER TABLE hourhand.artifacts
    ADD COLUMN signature bytea CHECK (octet_length(signature) = 64),     -- Ed25519, of the name and the digest
    ADD COLUMN signed_by text,                                           -- the id of the key, as it was told at the upload
    ADD CHECK ((signature IS NULL) = (signed_by IS NULL));
