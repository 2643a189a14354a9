// The core answers, refuses or hands over every frame, whatever it contains, and does nothing else.
#include <cstdlib>

#include "rpc/operations.h"
#include "check.h"

namespace svc {

namespace {

std::string bodyOf(Chance& chance, const Declared& declared) {
  std::string body;
  const auto put = [&](auto value) { body.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(declared.argsHash);
  const u32 width = static_cast<u32>(below(chance, 4));
  put(static_cast<u8>((below(chance, 2) ? 4 : 0) | (width << 3)));
  if (static_cast<u8>(body[4]) & 4) body.append("\xfd\x01", 2).push_back(0);
  const u64 parts = below(chance, 40);
  for (u64 part = 0; part < parts; ++part) {
    switch (below(chance, 5)) {
      case 0: put(chance()); break;
      case 1: put(static_cast<u8>(below(chance, 4))); break;
      case 2: {
        const u64 length = below(chance, 10) == 0 ? chance() : below(chance, 6);
        if (width == 0) put(static_cast<u8>(length));
        else if (width == 1) put(static_cast<u16>(length));
        else if (width == 2) put(static_cast<u32>(length));
        else put(length);
        body.append(std::min<u64>(length, 6), 'k');
        break;
      }
      case 3: put(Uuid{below(chance, 3), 1}); break;
      default: put(u64{below(chance, 300)});
    }
  }
  return body;
}

}  // namespace

void testFrames(Chance& chance, u32 rounds) {
  Settings settings;
  settings.leaseMs = 20;
  Store store(settings, chance());
  store.at(1'000);
  std::string folder = (std::filesystem::temp_directory_path() / "svc-frames-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  Log::Options options;
  options.folder = folder;
  Log log(options, [] {});
  log.recover(store);
  for (u64 client = 0; client < 3; ++client) {
    SegmentSpec spec;
    spec.id = {client, 9};
    const std::string name = "host:" + std::to_string(client);
    spec.name = spec.endpoint = name;
    spec.base = client << 40;
    spec.sizeBytes = 100'000;
    REQUIRE(store.holders.mount(spec, {client, 1}) == 0);
  }
  Operations operations(store);
  std::vector<Declared> declared;
  for (const CountedOperation& each : countedOperations) {
    const Op op = opOf(each.name);
    if (op == Op::script || op == Op::constant || op == Op::httpQueryKey) continue;
    const u32 number = static_cast<u32>(declared.size());
    declared.push_back({1000 + number, 2000 + number, op, true, std::string("\x87\x01\0", 3), ""});
    operations.declare(number, declared.back());
  }
  std::string out;
  for (u32 step = 0; step < rounds * 200'000; ++step) {
    Request request;
    request.function = static_cast<u32>(below(chance, declared.size() + 1));
    const std::string body = request.function < declared.size() ? bodyOf(chance, declared[request.function]) : "x";
    // The copy has the exact size, so that a sanitizer sees a read past its end.
    const std::unique_ptr<char[]> exact(new char[body.size()]);
    std::memcpy(exact.get(), body.data(), body.size());
    request.bodyBytes = static_cast<u32>(body.size());
    out.clear();
    const Operations::Outcome outcome = operations.run(request, exact.get(), nullptr, out);
    REQUIRE((outcome == Operations::Outcome::answered) == (out.size() >= responseBytes));
    out.clear();
    operations.run(request, exact.get(), &log, out);
    if (step % 100 != 0) continue;
    store.at(1'000 + step / 100);
    store.tend(100);
    log.write(store.journal);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace svc
