// HTTP: GET /query_key is answered here; a connection that sends anything else goes to JavaScript with the bytes it sent.
#include <sys/epoll.h>

#include <chrono>

#include "report/report.h"
#include "server/server.h"

namespace svc {

namespace {

constexpr std::string_view fastPath = "GET /query_key?", version = " HTTP/1.1", headEnd = "\r\n\r\n";
constexpr std::size_t longestHead = 8 << 10;

bool same(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]) != lower[i]) return false;
  return true;
}

// Extracts the query string of a request without a body on a keep-alive connection; false for anything less simple.
bool plain(std::string_view head, std::string_view& query) {
  const std::size_t line = std::min(head.find("\r\n"), head.size());
  std::string_view first = head.substr(fastPath.size(), line - fastPath.size());
  if (!first.ends_with(version)) return false;
  query = first.substr(0, first.size() - version.size());
  if (query.find(' ') != std::string_view::npos) return false;
  for (std::size_t at = line + 2; at < head.size();) {
    const std::size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string_view header = head.substr(at, end - at);
    at = end + 2;
    const std::size_t colon = header.find(':');
    if (colon == 0 || colon == std::string_view::npos || header[0] == ' ' || header[0] == '\t') return false;
    const std::string_view name = header.substr(0, colon);
    if (same(name, "connection")) {
      std::string_view value = header.substr(colon + 1);
      while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
      if (!same(value, "keep-alive")) return false;
    }
    for (const std::string_view other : {"content-length", "transfer-encoding", "expect", "upgrade"})
      if (same(name, other)) return false;
  }
  return true;
}

// Returns whether all members are known here. For others, and for a tenant while multi-tenancy is off, JavaScript reports the error.
bool known(std::string_view query, bool tenants) {
  for (std::size_t at = 0; at <= query.size();) {
    const std::size_t end = std::min(query.find('&', at), query.size());
    const std::string_view member = query.substr(at, end - at), name = member.substr(0, member.find('='));
    if (!name.empty() && name != "key" && !(tenants && name == "tenant_id")) return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

std::size_t Server::httpRequests(u32 slot, const char* bytes, std::size_t size) {
  std::size_t at = 0;
  for (u32 count = 0; at < size; ++count) {
    Connection& connection = conns_[slot];
    if (connection.waiting) return at;
    const std::string_view rest(bytes + at, size - at);
    const std::size_t end = rest.substr(0, longestHead).find(headEnd);
    const std::size_t compared = std::min(rest.size(), fastPath.size());
    const bool whole = end != std::string_view::npos;
    const bool may = answersHttp_ && serving() && replication_.leased(nowMs()) && rest.substr(0, compared) == fastPath.substr(0, compared) && (whole || rest.size() < longestHead);
    std::string_view query;
    if (!may || (whole && (!plain(rest.substr(0, end), query) || !known(query, store.settings.multiTenant)))) {
      connection.leaving = connection.waiting = true;
      return at;
    }
    if (!whole) return at;
    if (count >= limits_.framesPerIteration || connection.appended - connection.sent > limits_.unsentBytes) {
      if (!connection.ready) {
        connection.ready = true;
        ready_.push_back(slot);
      }
      return at;
    }
    const auto begun = std::chrono::steady_clock::now();
    std::string body;
    const u32 status = queryKeyJson(store, query, body);
    const std::size_t before = connection.out.size();
    connection.out.append(status == 200 ? "HTTP/1.1 200 OK" : "HTTP/1.1 404 Not Found");
    connection.out.append("\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ").append(std::to_string(body.size())).append(headEnd).append(body);
    connection.appended += connection.out.size() - before;
    touch(slot);
    operations.timed(Op::httpQueryKey, static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun).count()));
    operations.count(Op::httpQueryKey, status == 200 ? code::ok : code::notFound);
    at += end + headEnd.size();
  }
  return at;
}

// Hands the descriptor to JavaScript, once all earlier answers were sent.
void Server::handOff(u32 slot) {
  Connection& connection = conns_[slot];
  if (connection.sent != connection.appended) return;
  epoll_ctl(epoll_.fd, EPOLL_CTL_DEL, connection.fd, nullptr);
  emit_({EventKind::http, static_cast<u64>(connection.fd), 0, 0, connection.in.substr(connection.inAt)});
  drop(slot, false);
}

}  // namespace svc
