// Runs the tests of the core: core_test [rounds] [seed]; the seed is printed, so that a failure can be run again.
#include "check.h"

int main(int count, char** arguments) {
  const svc::u32 rounds = count > 1 ? static_cast<svc::u32>(std::atoi(arguments[1])) : 1;
  const svc::u64 seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const auto run = [&](const char* name, auto test) {
    svc::Chance chance(seed);
    test(chance);
    std::printf("%s holds\n", name);
    std::fflush(stdout);
  };
  run("allocator", [&](svc::Chance& chance) { svc::testAllocator(chance, rounds); });
  run("table", [&](svc::Chance& chance) { svc::testTable(chance, rounds); });
  run("store", [&](svc::Chance& chance) { svc::testStore(chance, rounds); });
  run("eviction", [&](svc::Chance& chance) { svc::testEviction(chance); });
  run("pressure", [&](svc::Chance& chance) { svc::testPressure(chance); });
  run("log", [&](svc::Chance& chance) { svc::testLog(chance, rounds); });
  run("frames", [&](svc::Chance& chance) { svc::testFrames(chance, rounds); });
  run("server", [&](svc::Chance& chance) { svc::testServer(chance, rounds); });
}
