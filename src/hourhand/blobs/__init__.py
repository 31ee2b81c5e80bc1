"""Bytes outside the database, in a folder of this machine or in object storage."""
