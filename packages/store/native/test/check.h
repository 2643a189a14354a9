// Shared by the core's tests: a random source with a printed seed, and an assertion that ends the program.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/base.h"

#define REQUIRE(claim)                                                          \
  do {                                                                          \
    if (!(claim)) {                                                             \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim);  \
      std::abort();                                                             \
    }                                                                           \
  } while (false)

namespace svc {

using Chance = std::mt19937_64;
inline u64 below(Chance& chance, u64 end) { return chance() % end; }

void testAllocator(Chance& chance, u32 rounds);
void testTable(Chance& chance, u32 rounds);
void testStore(Chance& chance, u32 rounds);
void testEviction(Chance& chance);
void testPressure(Chance& chance);
void testLog(Chance& chance, u32 rounds);
void testFrames(Chance& chance, u32 rounds);
void testServer(Chance& chance, u32 rounds);

}  // namespace svc
