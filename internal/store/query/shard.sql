-- name: MakeShard :exec
-- Makes a planned run one shard that stands for itself: it is not expanded, and joins when it ends.
UPDATE runs_live SET shard_index = @shard_index, shard_total = @shard_total, broadcast_id = id WHERE id = @id;
