// The table finds what was inserted and nothing else, while it grows and while other records are erased.
#include <unordered_map>

#include "objects/table.h"
#include "check.h"

namespace svc {

void testTable(Chance& chance, u32 rounds) {
  for (u32 round = 0; round < rounds; ++round) {
    Table table(chance());
    std::unordered_map<std::string, u32> model;
    const auto keyOf = [&] {
      std::string key = std::to_string(below(chance, 20'000));
      key.append(below(chance, 60), 'k');
      return key;
    };
    for (u32 step = 0; step < 200'000; ++step) {
      const std::string key = keyOf();
      const u16 tenant = static_cast<u16>(key.size() % 3);
      const u64 hash = table.hashOf(tenant, key);
      const u32 found = table.find(tenant, key, hash);
      const auto known = model.find(key);
      REQUIRE((known == model.end()) == (found == 0));
      REQUIRE(table.find(static_cast<u16>(tenant + 1), key, table.hashOf(static_cast<u16>(tenant + 1), key)) == 0);
      if (found != 0) {
        REQUIRE(found == known->second && table.keyOf(found) == key);
        if (below(chance, 100) < 45) {
          table.erase(found);
          model.erase(known);
        }
        continue;
      }
      const u32 index = table.insert(tenant, key, hash);
      REQUIRE(index != 0);
      model[key] = index;
    }
    REQUIRE(table.size() == model.size());
    for (const auto& [key, index] : model) REQUIRE(table.keyOf(index) == key);
    REQUIRE(table.insert(0, "", 0) == 0 && table.insert(0, std::string(70'000, 'x'), 0) == 0);
  }
}

}  // namespace svc
