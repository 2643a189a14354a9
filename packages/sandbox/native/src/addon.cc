// Tells where a connection went before the firewall redirected it (SO_ORIGINAL_DST), which Node cannot ask.
#include <arpa/inet.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <node_api.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace {

/** Takes a socket's descriptor; returns "a.b.c.d:port". Throws with the kernel's reason if the kernel knows no redirection of the socket. */
napi_value OriginalDestination(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value argument;
  napi_get_cb_info(env, info, &count, &argument, nullptr, nullptr);
  int32_t descriptor = -1;
  if (count != 1 || napi_get_value_int32(env, argument, &descriptor) != napi_ok) {
    napi_throw_type_error(env, nullptr, "expected the descriptor of a socket");
    return nullptr;
  }
  sockaddr_in destination{};
  socklen_t length = sizeof destination;
  if (getsockopt(descriptor, SOL_IP, SO_ORIGINAL_DST, &destination, &length) != 0) {
    napi_throw_error(env, nullptr, std::strerror(errno));
    return nullptr;
  }
  char address[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &destination.sin_addr, address, sizeof address);
  const std::string text = std::string(address) + ":" + std::to_string(ntohs(destination.sin_port));
  napi_value result;
  napi_create_string_latin1(env, text.data(), text.size(), &result);
  return result;
}

}  // namespace

NAPI_MODULE_INIT() {
  napi_value function;
  napi_create_function(env, "originalDestination", NAPI_AUTO_LENGTH, OriginalDestination, nullptr, &function);
  napi_set_named_property(env, exports, "originalDestination", function);
  return exports;
}
