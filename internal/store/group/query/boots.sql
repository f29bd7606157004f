-- name: SeeBoots :exec
-- Records processes of executors. Known ones are updated only every nine minutes, however many dispatchers see them.
INSERT INTO executor_boots AS b (group_name, boot_id, instance, version, host)
SELECT unnest(@groups::text[]), unnest(@boots::text[]), unnest(@instances::text[]), unnest(@versions::text[]), unnest(@hosts::text[])
ON CONFLICT (group_name, boot_id) DO UPDATE SET last_seen = clock_timestamp()
 WHERE b.last_seen < clock_timestamp() - interval '9 minutes';
