-- name: MakeShard :exec
-- Turns a planned run into a single shard that is its own broadcast: it is not expanded, and it joins when it ends.
UPDATE runs_live SET shard_index = @shard_index, shard_total = @shard_total, broadcast_id = id WHERE id = @id;
