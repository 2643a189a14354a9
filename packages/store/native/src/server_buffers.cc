// The buffers of connections: what they take is counted, large frames do not grow by copies, and quiet ones keep next to nothing.
#include <algorithm>

#include "server.h"

namespace svc {

namespace {
// A frame up to this size may be copied as it grows.
constexpr std::size_t smallFrameBytes = 256 << 10;
}

void Server::account(Connection& connection) {
  connection.filled = std::max(connection.filled, connection.in.size());
  const std::size_t now = std::min(connection.filled, connection.in.capacity()) + connection.out.capacity();
  bufferedBytes.fetch_add(now - connection.counted);
  connection.counted = now;
}

// A connection that is quiet again keeps next to nothing.
void Server::shrink(Connection& connection) {
  for (std::string* each : {&connection.in, &connection.out})
    if (each->empty() && each->capacity() > keptBytes) std::string().swap(*each);
  if (connection.in.capacity() <= keptBytes) connection.filled = connection.in.size();
}

// A large frame gets its whole place once an eighth of it is there, since a promise alone takes nothing: grown by doubling it would be
// copied over and over while everybody waits.
void Server::makeRoom(Connection& connection) {
  std::string& in = connection.in;
  if (connection.http || connection.closing || in.size() - connection.inAt < requestBytes) return;
  const Request request = Request::of(in.data() + connection.inAt);
  const std::size_t needed = connection.inAt + requestBytes + request.bodyBytes + request.attachmentBytes;
  if (needed <= smallFrameBytes || needed <= in.capacity() || in.size() - connection.inAt < needed / 8) return;
  in.reserve(needed);
  connection.filled = in.size();
}

// What a large frame took before the next one began is given back.
void Server::trim(Connection& connection) {
  if (connection.in.capacity() <= smallFrameBytes) return;
  connection.in.shrink_to_fit();
  connection.filled = connection.in.size();
}

}  // namespace svc
