// The core measured alone: entries stored and removed per second, queries, bytes per block. Prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "query.h"

using namespace svc;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Rates are per second of a core: others may run on the machine.
double cpu() {
  timespec at{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) * 1e-9;
}

u32 publisher(Index& index, int number) {
  Subscription sub;
  sub.instance = "engine-" + std::to_string(number);
  sub.tenant = "default";
  sub.model = "model";
  sub.blockSize = 16;
  return index.subscribe(std::move(sub));
}

double percentile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  const u32 chains = argc > 1 ? static_cast<u32>(std::atoi(argv[1])) : 2000, depth = 512;
  const int publishers = 64;
  Namespace space;
  space.tenant = "default";
  space.model = "model";
  space.blockSize = 16;
  std::mt19937_64 random(1);
  std::vector<u64> hashes(static_cast<std::size_t>(chains) * depth);
  for (u64& hash : hashes) hash = random();

  Index index(8ull << 30, 1337);
  Outcomes outcomes{};
  const u32 id = index.internSpace(space);
  std::vector<u32> subs, streams;
  for (int i = 0; i < publishers; ++i) {
    subs.push_back(publisher(index, i));
    streams.push_back(static_cast<u32>(index.internStream(subs.back(), "", "GPU", 0)));
  }
  // In events of 32 blocks, publisher by publisher: the first makes the blocks, the others share them.
  const u32 perEvent = 32;
  const auto storeAll = [&](int who) {
    u32 parent = 0;
    for (std::size_t at = 0; at < hashes.size(); at += perEvent) {
      if (at % depth == 0) parent = 0;
      index.tick();
      index.store(subs[who], streams[who], id, &hashes[at], perEvent, nullptr, parent, outcomes);
      parent = index.find(id, hashes[at + perEvent - 1]);
    }
  };
  double start = cpu();
  storeAll(0);
  const double fresh = static_cast<double>(hashes.size()) / (cpu() - start);
  start = cpu();
  for (int who = 1; who < publishers; ++who) storeAll(who);
  const double sharedRate = static_cast<double>(hashes.size()) * (publishers - 1) / (cpu() - start);
  const double all = static_cast<double>(hashes.size()) * publishers / (cpu() - start + static_cast<double>(hashes.size()) / fresh);
  const double bytesEach = static_cast<double>(index.indexBytes()) / index.arena().live();

  Query query(index);
  const View view = query.view(space);
  Request request;
  request.space = space;
  std::vector<double> hit, miss;
  std::vector<u64> unknown(512);
  for (u64& hash : unknown) hash = random();
  const auto measure = [&](std::vector<double>& into, auto prompt) {
    for (int round = 0; round < 20000; ++round) {
      request.hashes = prompt(round);
      request.hashCount = 512;
      const double from = now();
      query.match(request, view);
      into.push_back((now() - from) * 1e6);
    }
  };
  measure(hit, [&](int) { return &hashes[0]; });
  std::vector<double> spread;
  measure(spread, [&](int) { return &hashes[random() % chains * depth]; });
  measure(miss, [&](int) { return unknown.data(); });
  std::vector<u32> tokens(32768);
  for (u32& token : tokens) token = static_cast<u32>(random() % 150000);
  std::vector<double> tokenMiss;
  for (int round = 0; round < 5000; ++round) {
    Request byTokens;
    byTokens.space = space;
    byTokens.tokens = tokens.data();
    byTokens.tokenCount = tokens.size();
    const double from = now();
    query.match(byTokens, view);
    tokenMiss.push_back((now() - from) * 1e6);
  }

  // Engines evict in an order of their own: chain tails of chains at random, in events of 32.
  std::vector<std::size_t> order(hashes.size() / perEvent);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i * perEvent;
  double removed = 0;
  for (int who = 1; who < publishers; ++who) {
    std::shuffle(order.begin(), order.end(), random);
    const double from = cpu();
    for (const std::size_t at : order) index.remove(subs[who], streams[who], id, &hashes[at], perEvent, outcomes);
    removed += cpu() - from;
  }
  const double removeRate = static_cast<double>(hashes.size()) * (publishers - 1) / removed;
  // One publisher holds all now; it clears, and the blocks are freed in the slices that src/reclaim.ts asks for.
  start = cpu();
  index.clear(subs[0]);
  const double clearTime = cpu() - start;
  std::vector<double> slices;
  for (bool more = true; more;) {
    const double from = cpu();
    more = index.reclaim(1 << 14);
    slices.push_back((cpu() - from) * 1e3);
  }
  std::printf(
      "{\"blocks\":%zu,\"publishers\":%d,\"stored_new_per_second\":%.0f,\"stored_shared_per_second\":%.0f,\"stored_all_per_second\":%.0f,\"removed_per_second\":%.0f,"
      "\"bytes_per_block\":%.2f,\"hit_512_blocks_64_instances_us\":{\"p50\":%.3f,\"p99\":%.3f},\"hit_512_spread_us\":{\"p50\":%.3f,\"p99\":%.3f},"
      "\"miss_us\":{\"p50\":%.3f,\"p99\":%.3f},\"token_miss_us\":{\"p50\":%.3f},\"clear_us\":%.1f,\"reclaim_slice_ms\":{\"p50\":%.3f,\"p99\":%.3f}}\n",
      hashes.size(), publishers, fresh, sharedRate, all, removeRate, bytesEach, percentile(hit, 0.5), percentile(hit, 0.99), percentile(spread, 0.5), percentile(spread, 0.99),
      percentile(miss, 0.5), percentile(miss, 0.99), percentile(tokenMiss, 0.5), clearTime * 1e6, percentile(slices, 0.5), percentile(slices, 0.99));
  return 0;
}
