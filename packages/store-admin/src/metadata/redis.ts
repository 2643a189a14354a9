// The admin server's records in Redis: each change is one script, so that it is atomic.
import { fail } from "@svc/contract/failures.ts";
import { type Entry, MAX_LISTED, type Records } from "./records.ts";
import { type RedisAddress, RedisConnection, type RedisValue } from "./redis-connection.ts";

// PREFIX:r:KEY    hash: value, version
// PREFIX:index    sorted set of all keys, for listing by prefix
// PREFIX:version  the last version used
const PUT = `local now = redis.call('HGET', KEYS[1], 'version') or '0'
if now ~= ARGV[1] then return 0 end
local version = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[1], 'value', ARGV[2], 'version', version)
redis.call('ZADD', KEYS[2], 0, ARGV[3])
return version`;
const DELETE = `local now = redis.call('HGET', KEYS[1], 'version') or '0'
if now ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[2])
return 1`;
const LIST = `local keys = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. ARGV[2], '[' .. ARGV[2] .. '\\255', 'LIMIT', 0, ARGV[3])
local found = {}
for _, key in ipairs(keys) do
  local row = redis.call('HMGET', ARGV[1] .. key, 'value', 'version')
  table.insert(found, key)
  table.insert(found, row[1])
  table.insert(found, row[2])
end
return found`;

export function openRedisRecords(address: RedisAddress, prefix: string): Records {
  const redis = new RedisConnection(address);
  const [rows, index, counter] = [`${prefix}:r:`, `${prefix}:index`, `${prefix}:version`];
  return {
    async get(key) {
      const [value, version] = (await redis.call("HMGET", rows + key, "value", "version")) as readonly (string | null)[];
      return typeof value === "string" && typeof version === "string" ? { key, value, version: BigInt(version) } : undefined;
    },
    async list(below) {
      const found = (await redis.call("EVAL", LIST, 1, index, rows, below, MAX_LISTED + 1)) as readonly RedisValue[];
      const entries: Entry[] = [];
      for (let at = 0; at < found.length; at += 3)
        entries.push({ key: String(found[at]), value: String(found[at + 1]), version: BigInt(String(found[at + 2])) });
      if (entries.length > MAX_LISTED) fail("CAPACITY_EXHAUSTED", `there are more than ${MAX_LISTED} records below ${below}`);
      return entries;
    },
    async put(key, value, expected) {
      const version = await redis.call("EVAL", PUT, 3, rows + key, index, counter, expected, value, key);
      return version === 0 ? undefined : BigInt(version as number);
    },
    async delete(key, expected) {
      // An absent key has version 0, but it cannot be deleted at that version.
      return expected !== 0n && (await redis.call("EVAL", DELETE, 2, rows + key, index, expected, key)) === 1;
    },
    close: async () => redis.close(),
  };
}
