// The native library alone, built by the guide's commands with the address and undefined sanitizers: installed, used, stressed, fuzzed.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { NATIVE, run, SANITIZER_ENV } from "./cmake.ts";
import { openGuide } from "./guide.ts";

const SANITIZERS = "address,undefined";
/** Eight files form one unit, so that their headers, which are most of the work, are read once. Set-up builds each file separately. */
const UNITY = "-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=8";
const guide = openGuide();
after(() => guide[Symbol.dispose]());
const [building = "", using = ""] = guide.commands.filter((block) => block.includes("cmake "));
const programs = join(guide.folder, "svc_te");
const program = (name: string, ...args: string[]) => run(join(programs, name), args, SANITIZER_ENV);
const compiler = needs("cmake", "g++");
let built = false;
/** Fails a test that needs the library with that reason if it was not built. */
const library = () => assert.ok(built, "the library was not built");

void test("the guide's commands build and install the library", compiler, async () => {
  const options = `-DBUILD_CHECKS=ON -DSANITIZE=${SANITIZERS} -DSANITIZE_LEVEL=-O0 ${UNITY}`;
  assert.match(building, /^cmake -S .* -DBUILD_NODE=OFF$/m);
  await guide.run(building.replace("-DBUILD_NODE=OFF", `-DBUILD_NODE=OFF ${options}`), { CMAKE_BUILD_PARALLEL_LEVEL: String(availableParallelism()) });
  built = true;
});

void test("the C++ quick start of the guide builds with the installed library and runs unchanged", compiler, async () => {
  library();
  const said = await guide.run(using, { CXXFLAGS: `-fsanitize=${SANITIZERS}`, ...SANITIZER_ENV });
  assert.match(said, /^send\.cc: hello from C\+\+$/m);
});

void test("a C++ program on the public headers, class and C interface, finds all their promises kept", compiler, async () => {
  library();
  const user = join(guide.folder, "user");
  mkdirSync(user);
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
  const prefix = join(guide.folder, "installed");
  for (const step of [
    ["-S", user, "-B", join(user, "build"), `-DCMAKE_PREFIX_PATH=${prefix}`, `-DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZERS}`],
    ["--build", join(user, "build")],
  ]) {
    const made = await run("cmake", step);
    assert.equal(made.code, 0, made.output);
  }
  const ran = await run(join(user, "build/program"), [], SANITIZER_ENV);
  assert.equal(ran.output.trim().split("\n").at(-1), "every check passed");
  assert.equal(ran.code, 0);
});

void test("eight threads transfer over every path of a host while others register, and the sanitizers report nothing", compiler, async () => {
  library();
  // Without this check, a build that lacks the sanitizers by mistake would pass.
  assert.match((await run("ldd", [join(programs, "stress")])).output, /libasan[\s\S]*libubsan/);
  const stress = await program("stress", "15");
  assert.equal(stress.code, 0, stress.output);
  assert.match(stress.output, /every byte as it should be/);
});

void test(
  "fuzzed inputs break no parser of untrusted bytes, devices are found with their NUMA nodes, and folders with their kind of file system",
  compiler,
  async () => {
    library();
    const fuzz = await program("fuzz", "20000");
    assert.equal(fuzz.code, 0, fuzz.output);
    const topology = await program("topology", join(programs, "sys"));
    assert.equal(topology.code, 0, topology.output);
    const mounts = await program("mounts");
    assert.equal(mounts.code, 0, mounts.output);
  },
);
