// Ranges never overlap, never leave the segment, and all can be freed; a restore brings back the same used ranges.
#include <map>

#include "objects/allocator.h"
#include "check.h"

namespace svc {

void testAllocator(Chance& chance, u32 rounds) {
  Pool<Node> nodes(1 << 20);
  for (u32 round = 0; round < rounds * 20; ++round) {
    const u64 capacity = 1 + below(chance, u64{1} << (10 + below(chance, 30)));
    std::vector<std::pair<u64, u64>> kept;
    {
      Allocator allocator(nodes, capacity);
      std::map<u64, std::pair<u64, u32>> used;
      for (u32 step = 0; step < 2000; ++step) {
        if (used.empty() || below(chance, 100) < 60) {
          const u64 size = 1 + below(chance, 1 + (capacity >> below(chance, 12)));
          const bool named = below(chance, 4) == 0;
          const u64 wanted = below(chance, capacity + 1);
          const u32 node = named ? allocator.takeAt(wanted, size) : allocator.take(size);
          if (node == 0) continue;
          const u64 offset = allocator.offsetOf(node);
          REQUIRE(!named || offset == wanted);
          REQUIRE(allocator.sizeOf(node) == size && offset + size <= capacity);
          const auto after = used.lower_bound(offset);
          REQUIRE(after == used.end() || after->first >= offset + size);
          REQUIRE(after == used.begin() || std::prev(after)->first + std::prev(after)->second.first <= offset);
          used[offset] = {size, node};
        } else {
          auto at = used.lower_bound(below(chance, capacity));
          if (at == used.end()) at = used.begin();
          allocator.give(at->second.second);
          used.erase(at);
        }
        if (step % 100 == 0) REQUIRE(allocator.sound());
      }
      REQUIRE(allocator.sound());
      for (const auto& [offset, held] : used) kept.push_back({offset, held.first});
    }
    REQUIRE(nodes.live() == 0);
    {
      // All of them fit into an empty segment when they are requested in ascending order.
      Allocator named(nodes, capacity);
      for (const auto& [offset, size] : kept) REQUIRE(named.takeAt(offset, size) != 0 && named.takeAt(offset, size) == 0);
      REQUIRE(named.sound());
    }
    Allocator again(nodes, capacity);
    std::vector<std::pair<u32, u64>> ranges;
    for (const auto& [offset, size] : kept) {
      const u32 node = nodes.take();
      nodes[node].offset = offset;
      ranges.push_back({node, size});
    }
    // A range outside of the segment is left out.
    const u32 outside = nodes.take();
    nodes[outside].offset = capacity;
    ranges.push_back({outside, 1});
    const std::vector<u32> left = again.restore(ranges);
    REQUIRE(left.size() == 1 && left[0] == outside);
    nodes.give(outside);
    REQUIRE(again.sound());
    for (const auto& [node, size] : ranges)
      if (node != outside) again.give(node);
    REQUIRE(again.sound() && again.used() == 0);
    REQUIRE(again.take(capacity) != 0 && again.take(1) == 0);
  }
  // Freed ranges are used again before never-used space, and both together still hold a range that needs all of it.
  Allocator allocator(nodes, 1 << 20);
  std::vector<u32> half;
  for (u32 i = 0; i < 8; ++i) half.push_back(allocator.take(64 << 10));
  for (const u32 node : half) allocator.give(node);
  for (u32 i = 0; i < 8; ++i) {
    half[i] = allocator.take(64 << 10);
    REQUIRE(half[i] != 0 && allocator.offsetOf(half[i]) < (512 << 10));
  }
  for (const u32 node : half) allocator.give(node);
  REQUIRE(allocator.sound() && allocator.take(1 << 20) != 0 && allocator.sound());
}

}  // namespace svc
