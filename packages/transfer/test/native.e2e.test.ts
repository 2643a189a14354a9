// The native library by itself: installed by CMake, used by a C++ program, stressed, and its parsers fuzzed.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { buildNative, NATIVE, run } from "./cmake.ts";

void test(
  "a C++ program finds the installed library by CMake, builds on its header, and moves bytes; threads and fuzzed inputs break nothing, and devices are found with their NUMA nodes",
  needs("cmake", "g++"),
  async () => {
    await using build = await buildNative("-DCMAKE_BUILD_TYPE=Debug");
    const prefix = join(build.folder, "prefix");
    const installed = await run("cmake", ["--install", build.folder, "--prefix", prefix]);
    assert.equal(installed.code, 0, installed.output);
    const user = join(build.folder, "user");
    await run("mkdir", ["-p", user]);
    writeFileSync(
      join(user, "CMakeLists.txt"),
      `cmake_minimum_required(VERSION 3.18)
project(user CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(Threads REQUIRED)
find_package(svc_transfer REQUIRED)
add_executable(program ${join(NATIVE, "test/program.cc")})
target_link_libraries(program svc::svc_te)
`,
    );
    for (const step of [
      ["-S", user, "-B", join(user, "build"), `-DCMAKE_PREFIX_PATH=${prefix}`],
      ["--build", join(user, "build")],
    ]) {
      const built = await run("cmake", step);
      assert.equal(built.code, 0, built.output);
    }
    const ran = await run(join(user, "build/program"), []);
    assert.equal(ran.output.trim().split("\n").at(-1), "every check passed");
    assert.equal(ran.code, 0);

    const stress = await run(join(build.folder, "stress"), ["15"]);
    assert.equal(stress.code, 0, stress.output);
    const topology = await run(join(build.folder, "topology"), [join(build.folder, "sys")]);
    assert.equal(topology.code, 0, topology.output);
    const fuzz = await run(join(build.folder, "fuzz"), ["20000"]);
    assert.equal(fuzz.code, 0, fuzz.output);
  },
);
