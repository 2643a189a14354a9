// Measures the core alone: the worst case of each number next to the best one. Prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "query.h"

using namespace svc;

namespace {

constexpr u32 depth = 512, perEvent = 32;
std::mt19937_64 source(1);

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Rates are per second of CPU time, since other programs may run on the machine.
double cpu() {
  timespec at{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) * 1e-9;
}

double percentile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

std::vector<u64> randoms(std::size_t count) {
  std::vector<u64> out(count);
  for (u64& value : out) value = source();
  return out;
}

void figure(const char* name, double value) { std::printf("\"%s\":%.3f,", name, value); }

// An index with one namespace and several publishers; chains are stored and removed in events of 32 blocks.
struct Bed {
  Bed(u32 publishers, u64 budget) : index(budget, 1337), query(index) {
    space.tenant = "default";
    space.model = "model";
    space.blockSize = 16;
    id = index.internSpace(space);
    for (u32 i = 0; i < publishers; ++i) {
      Subscription sub;
      sub.instance = "engine-" + std::to_string(i);
      sub.tenant = space.tenant;
      sub.model = space.model;
      sub.blockSize = space.blockSize;
      sub.scope = scopeSeed(sub.tenant, sub.model, sub.blockSize);
      subs.push_back(index.subscribe(std::move(sub)));
      streams.push_back(static_cast<u32>(index.internStream(subs.back(), {"", "GPU"})));
    }
  }
  // `names` are the publisher's own names; nullptr if it uses the standard hashes.
  void store(u32 who, const u64* hashes, const u64* names) {
    u32 parent = 0;
    for (u32 at = 0; at < depth; at += perEvent) {
      index.tick();
      index.ensureCapacity(perEvent);
      index.store(subs[who], streams[who], id, hashes + at, perEvent, names == nullptr ? nullptr : names + at, parent, outcomes);
      parent = index.find(id, hashes[at + perEvent - 1]);
    }
  }
  void remove(u32 who, const u64* names) { index.remove(subs[who], streams[who], id, names, perEvent, outcomes); }
  // Measures the match alone, without writing the answer.
  template <typename Prompt>
  std::vector<double> match(int rounds, Prompt prompt) {
    const View view = query.view(space);
    Request request;
    request.space = space;
    std::vector<double> tookUs;
    for (int round = 0; round < rounds; ++round) {
      prompt(request);
      const double from = now();
      query.match(request, view);
      tookUs.push_back((now() - from) * 1e6);
    }
    return tookUs;
  }
  Index index;
  Query query;
  Namespace space;
  Outcomes outcomes{};
  u32 id = 0;
  std::vector<u32> subs, streams;
};

struct Workload {
  explicit Workload(u32 chains) : hashes(randoms(static_cast<std::size_t>(chains) * depth)), names(randoms(hashes.size())) {}
  const u64* chain(std::size_t i) const { return &hashes[i * depth]; }
  const u64* called(std::size_t i) const { return &names[i * depth]; }
  std::vector<u64> hashes, names;
};

// Three in four entries are blocks that only one publisher has, all under the engines' own names; chains are removed one after the other,
// from their tails.
void foreign(u32 chains) {
  constexpr u32 publishers = 64;
  const Workload work(chains / 4 * 3);
  Bed bed(publishers, 8ull << 30);
  std::vector<std::pair<u32, u32>> held;  // publisher, chain
  for (u32 i = 0; i < chains; ++i) held.emplace_back(i % publishers, i < chains / 4 * 3 ? i : i - chains / 4 * 3);
  const double entries = static_cast<double>(held.size()) * depth;
  double start = cpu();
  for (const auto& [who, chain] : held) bed.store(who, work.chain(chain), work.called(chain));
  figure("foreign_unique_stored_per_second", entries / (cpu() - start));
  figure("foreign_bytes_per_block", static_cast<double>(bed.index.indexBytes() + bed.index.nameBytes()) / bed.index.arena().live());
  std::shuffle(held.begin(), held.end(), source);
  u64 backwards[perEvent];
  start = cpu();
  for (const auto& [who, chain] : held)
    for (u32 end = depth; end > 0; end -= perEvent) {
      std::reverse_copy(work.called(chain) + end - perEvent, work.called(chain) + end, backwards);
      bed.remove(who, backwards);
    }
  figure("foreign_tail_first_removed_per_second", entries / (cpu() - start));
}

// The budget is a quarter of the stored blocks, so each new block evicts another.
void churn(u32 chains) {
  const Workload work(chains);
  Bed bed(8, static_cast<u64>(chains) * depth * 60 / 4);
  const auto store = [&](u32 from, u32 to, std::vector<double>* eventsMs) {
    for (u32 i = from; i < to; ++i) {
      const double at = cpu();
      bed.store(i % 8, work.chain(i), work.called(i));
      if (eventsMs != nullptr) eventsMs->push_back((cpu() - at) * 1e3 / (depth / perEvent));
    }
  };
  store(0, chains / 2, nullptr);
  std::vector<double> eventsMs;
  const double start = cpu();
  store(chains / 2, chains, &eventsMs);
  figure("churn_stored_per_second", static_cast<double>(chains - chains / 2) * depth / (cpu() - start));
  figure("churn_budget_bytes_per_block", static_cast<double>(bed.index.budgetBytes()) / bed.index.arena().live());
  figure("churn_event_p99_ms", percentile(eventsMs, 0.99));
}

// Every instance has all chains, and each query requests another chain.
void hits(u32 instances, u32 chains, bool kindToo) {
  const Workload work(chains);
  Bed bed(instances, 8ull << 30);
  double start = cpu();
  for (u32 i = 0; i < chains; ++i) bed.store(0, work.chain(i), nullptr);
  const double entries = static_cast<double>(chains) * depth, fresh = cpu() - start;
  for (u32 who = 1; who < instances; ++who)
    for (u32 i = 0; i < chains; ++i) bed.store(who, work.chain(i), nullptr);
  const double stored = cpu() - start;
  const std::string many = "_" + std::to_string(instances) + "_instances";
  const auto named = [&](const char* what, double value) { figure((what + many).c_str(), value); };
  const auto byHash = [](Request& request, const u64* hashes) { request.hashes = hashes, request.hashCount = depth; };
  auto spread = bed.match(20000, [&](Request& request) { byHash(request, work.chain(source() % chains)); });
  named("hit_spread_us_p50", percentile(spread, 0.5));
  named("hit_spread_us_p99", percentile(spread, 0.99));
  // No instance has the second half of this prompt.
  std::vector<u64> half = randoms(depth);
  auto partial = bed.match(20000, [&](Request& request) {
    std::copy_n(work.chain(source() % chains), depth / 2, half.begin());
    byHash(request, half.data());
  });
  named("hit_half_us_p50", percentile(partial, 0.5));
  const std::vector<u64> unknown = randoms(std::size_t{1} << 16);
  auto miss = bed.match(20000, [&](Request& request) { byHash(request, &unknown[source() % (unknown.size() - depth)]); });
  named("miss_us_p50", percentile(miss, 0.5));
  if (!kindToo) return;

  figure("standard_unique_stored_per_second", entries / fresh);
  figure("standard_known_stored_per_second", entries * instances / stored);
  figure("standard_bytes_per_block", static_cast<double>(bed.index.indexBytes()) / bed.index.arena().live());
  auto same = bed.match(20000, [&](Request& request) { byHash(request, work.chain(0)); });
  figure("hit_one_prompt_us_p50", percentile(same, 0.5));
  std::vector<u32> tokens(32768);
  for (u32& token : tokens) token = static_cast<u32>(source() % 150000);
  auto tokenMiss = bed.match(5000, [&](Request& request) { request.tokens = tokens.data(), request.tokenCount = tokens.size(); });
  figure("token_miss_us_p50", percentile(tokenMiss, 0.5));
  // Removes all blocks of whole instances, event by event: the cost of a clear that a publisher sends as removals.
  start = cpu();
  std::vector<std::size_t> order(work.hashes.size() / perEvent);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i * perEvent;
  for (u32 who = 1; who < instances; ++who) {
    std::shuffle(order.begin(), order.end(), source);
    for (const std::size_t at : order) bed.remove(who, &work.hashes[at]);
  }
  figure("standard_ascending_removed_per_second", entries * (instances - 1) / (cpu() - start));
  bed.index.clear(bed.subs[0]);
  std::vector<double> stepsMs;
  for (bool more = true; more;) {
    const double from = cpu();
    more = bed.index.reclaim(1 << 12);
    stepsMs.push_back((cpu() - from) * 1e3);
  }
  figure("reclaim_step_ms_p99", percentile(stepsMs, 0.99));
}

// Each chain is in all instances but one, and the missing instance rotates.
void mixed(u32 instances, u32 chains) {
  const Workload work(chains);
  Bed bed(instances, 8ull << 30);
  for (u32 who = 0; who < instances; ++who)
    for (u32 i = 0; i < chains; ++i)
      if (i % instances != who) bed.store(who, work.chain(i), nullptr);
  auto tookUs = bed.match(20000, [&](Request& request) { request.hashes = work.chain(source() % chains), request.hashCount = depth; });
  figure(("hit_mixed_us_p50_" + std::to_string(instances) + "_instances").c_str(), percentile(tookUs, 0.5));
}

// Measures answers for a salt that no event has named.
void unnamed(u32 instances) {
  Bed bed(instances, 1ull << 30);
  Request request;
  request.space = bed.space;
  request.hashes = &bed.space.seed;
  std::vector<double> tookUs;
  for (int round = 0; round < 2000; ++round) {
    request.space.salt = std::to_string(round);
    const double from = now();
    bed.query.answer(request);
    tookUs.push_back((now() - from) * 1e6);
  }
  figure(("unnamed_salt_answer_us_p50_" + std::to_string(instances) + "_instances").c_str(), percentile(tookUs, 0.5));
}

}  // namespace

int main(int argc, char** argv) {
  // Chains have 512 blocks each, so the default is two million blocks. A second argument selects a single part.
  const u32 chains = argc > 1 ? static_cast<u32>(std::atoi(argv[1])) : 4000;
  const auto wanted = [&](std::string_view part) { return argc <= 2 || part == argv[2]; };
  std::printf("{");
  if (wanted("foreign")) foreign(chains);
  if (wanted("churn")) churn(chains / 2);
  if (wanted("hits")) {
    hits(8, chains / 2, false);
    hits(1000, chains / 20, false);
    hits(64, chains / 2, true);
  }
  if (wanted("mixed")) {
    mixed(64, chains / 4);
    mixed(1000, chains / 20);
  }
  if (wanted("unnamed")) unnamed(333);
  std::printf("\"blocks\":%u}\n", chains * depth);
  return 0;
}
