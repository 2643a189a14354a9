// The buffers of connections: their memory is counted, large frames are not copied as they grow, and idle connections keep almost none.
#include <algorithm>

#include "server/server.h"

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

// An idle connection keeps almost no memory.
void Server::shrink(Connection& connection) {
  for (std::string* each : {&connection.in, &connection.out})
    if (each->empty() && each->capacity() > keptBytes) std::string().swap(*each);
  if (connection.in.capacity() <= keptBytes) connection.filled = connection.in.size();
}

// A large frame is reserved in full once an eighth of it has arrived, so that an announced size alone takes no memory. Growing by
// doubling would copy it again and again while all connections wait.
void Server::growBuffer(Connection& connection) {
  std::string& in = connection.in;
  if (connection.http || connection.closing || in.size() - connection.inAt < requestBytes) return;
  const Request request = Request::of(in.data() + connection.inAt);
  const std::size_t needed = connection.inAt + requestBytes + request.bodyBytes + request.attachmentBytes;
  if (needed <= smallFrameBytes || needed <= in.capacity() || in.size() - connection.inAt < needed / 8) return;
  in.reserve(needed);
  connection.filled = in.size();
}

// The memory of a large frame is given back before the next one arrives.
void Server::trim(Connection& connection) {
  if (connection.in.capacity() <= smallFrameBytes) return;
  connection.in.shrink_to_fit();
  connection.filled = connection.in.size();
}

}  // namespace svc
