-- name: list_partitions
SELECT parent.relname AS parent, child.relname AS name, pg_get_expr(child.relpartbound, child.oid) AS bounds
  FROM pg_inherits i
  JOIN pg_class parent ON parent.oid = i.inhparent
  JOIN pg_class child ON child.oid = i.inhrelid
  JOIN pg_namespace n ON n.oid = parent.relnamespace
 WHERE n.nspname = @schema
 ORDER BY 1, 2;
