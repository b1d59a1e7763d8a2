//! The baseline of Redis: bare scripts doing the least that a finished run needs, for as many runs at once: a record of
//! the run, written three times, one of the attempt, written twice, who waits and who is held, and four events.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use crate::bare::Took;
use crate::reached;

const ENQUEUE: &str = "
    for i = 2, #ARGV do
      local id = ARGV[i]
      redis.call('HSET', 'b:runs', id, '0' .. ARGV[1])
      redis.call('ZADD', 'b:ready', 0, id)
      redis.call('XADD', 'b:events', '*', 'e', '1' .. id)
    end";
const CLAIM: &str = "
    local ids = redis.call('ZRANGE', 'b:ready', 0, ARGV[1] - 1)
    for _, id in ipairs(ids) do
      local record = redis.call('HGET', 'b:runs', id)
      redis.call('ZREM', 'b:ready', id)
      redis.call('HSET', 'b:runs', id, '1' .. string.sub(record, 2))
      redis.call('ZADD', 'b:held', 9, id)
      redis.call('XADD', 'b:events', '*', 'e', '2' .. id)
    end
    return ids";
const BEGIN: &str = "
    for _, id in ipairs(ARGV) do
      local record = redis.call('HGET', 'b:runs', id)
      redis.call('HSET', 'b:runs', id, '2' .. string.sub(record, 2))
      redis.call('HSET', 'b:attempts', id, '0')
      redis.call('XADD', 'b:events', '*', 'e', '3' .. id)
    end";
const END: &str = "
    for _, id in ipairs(ARGV) do
      local record = redis.call('HGET', 'b:runs', id)
      redis.call('HSET', 'b:runs', id, '5' .. string.sub(record, 2))
      redis.call('HSET', 'b:attempts', id, '1')
      redis.call('ZREM', 'b:held', id)
      redis.call('ZADD', 'b:ended', 2, id)
      redis.call('XADD', 'b:events', '*', 'e', '4' .. id)
    end";
const RENEW: &str = "
    for i = 2, #ARGV do
      local record = redis.call('HGET', 'b:runs', ARGV[i])
      redis.call('HSET', 'b:runs', ARGV[i], string.sub(record, 1, 1) .. ARGV[1] .. string.sub(record, 1 + #ARGV[1]))
      redis.call('ZADD', 'b:held', ARGV[1], ARGV[i])
    end";

const ALL: [&str; 5] = [ENQUEUE, CLAIM, BEGIN, END, RENEW];

/// As many as a script may be given.
const AT_ONCE: usize = 1000;

pub(crate) struct Bare {
    conn: MultiplexedConnection,
    digests: Vec<String>,
}

impl Bare {
    pub(crate) async fn open() -> Self {
        reached::empty_redis().await;
        let mut conn = reached::connection().await;
        let mut digests = Vec::new();
        for script in ALL {
            let mut load = redis::cmd("SCRIPT");
            digests.push(load.arg("LOAD").arg(script).query_async(&mut conn).await.expect("a script"));
        }
        Self { conn, digests }
    }

    pub(crate) async fn cycles(mut self, count: usize, batch: usize) -> Took {
        let clock = Instant::now();
        let mut next = 0;
        while next < count {
            let last = count.min(next + batch);
            self.enqueue(next, last).await;
            next = last;
        }
        let enqueue = clock.elapsed();
        let clock = Instant::now();
        let mut done = 0;
        while done < count {
            let ids: Vec<Vec<u8>> = self.call(CLAIM, &[batch.to_string().into_bytes()]).await;
            self.call::<()>(BEGIN, &ids).await;
            self.call::<()>(END, &ids).await;
            done += ids.len();
        }
        Took { enqueue, rest: clock.elapsed() }
    }

    /// How long it takes to renew so many leases, sent at once.
    pub(crate) async fn renews(mut self, count: usize, times: usize) -> Vec<Duration> {
        for first in (0..count).step_by(AT_ONCE) {
            self.enqueue(first, count.min(first + AT_ONCE)).await;
        }
        let ids: Vec<Vec<u8>> = self.call(CLAIM, &[count.to_string().into_bytes()]).await;
        let mut took = Vec::new();
        for n in 0..times {
            let clock = Instant::now();
            let mut all = redis::pipe();
            for ids in ids.chunks(AT_ONCE) {
                let mut with = vec![(100 + n).to_string().into_bytes()];
                with.extend_from_slice(ids);
                all.add_command(self.evaluated(RENEW, &with));
            }
            all.exec_async(&mut self.conn).await.expect("renewed");
            took.push(clock.elapsed());
        }
        took
    }

    async fn enqueue(&mut self, first: usize, last: usize) {
        let mut with = vec![vec![b'x'; 256]];
        with.extend((first..last).map(|n| format!("{n:016x}").into_bytes()));
        self.call::<()>(ENQUEUE, &with).await;
    }

    async fn call<T: redis::FromRedisValue>(&mut self, script: &str, with: &[Vec<u8>]) -> T {
        self.evaluated(script, with).query_async(&mut self.conn).await.expect("an answer")
    }

    fn evaluated(&self, script: &str, with: &[Vec<u8>]) -> redis::Cmd {
        let place = ALL.iter().position(|known| *known == script).expect("a script of this baseline");
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.digests[place]).arg(0);
        for value in with {
            call.arg(value);
        }
        call
    }
}
