// GET /query_key: parses the query string and writes the specified answer. It is the only HTTP path whose speed matters.
#include "report/report.h"

namespace svc {

namespace {

int digit(char each) { return each >= '0' && each <= '9' ? each - '0' : (each | 0x20) >= 'a' && (each | 0x20) <= 'f' ? (each | 0x20) - 'a' + 10 : -1; }

// Returns the first member of that name, percent-decoded; a percent sign that encodes nothing stays, since keys may contain it.
std::string memberOf(std::string_view query, std::string_view name) {
  for (std::size_t at = 0; at <= query.size();) {
    const std::size_t end = std::min(query.find('&', at), query.size());
    const std::string_view part = query.substr(at, end - at);
    at = end + 1;
    const std::size_t equals = part.find('=');
    if (part.substr(0, equals) != name) continue;
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    std::string out;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const int high = value[i] == '%' && i + 2 < value.size() ? digit(value[i + 1]) : -1;
      const int low = high >= 0 ? digit(value[i + 2]) : -1;
      if (low >= 0) i += 2;
      out.push_back(low >= 0 ? static_cast<char>(high << 4 | low) : value[i]);
    }
    return out;
  }
  return {};
}

}  // namespace

u32 queryKeyJson(Store& store, std::string_view query, std::string& body) {
  const std::string key = memberOf(query, "key");
  u32 index = 0;
  const i32 outcome = store.objects.read(store.tenants.numberOf(memberOf(query, "tenant_id")), key, false, index);
  if (outcome == code::ok) {
    body = "{\"success\":true,\"data\":" + replicasJson(store, index) + "}";
    return 200;
  }
  body = outcome == code::notReady ? R"({"success":false,"error_code":-703,"error_message":"REPLICA_IS_NOT_READY"})"
                                   : R"({"success":false,"error_code":-704,"error_message":"OBJECT_NOT_FOUND"})";
  return 404;
}

}  // namespace svc
