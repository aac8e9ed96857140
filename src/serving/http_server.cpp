#include "serving/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "serving/http_session.h"

namespace kvikk {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

// Where the system has no descriptor left, before it is asked again.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

Result<tcp::endpoint> resolve(asio::io_context& io, const HttpServerOptions& options) {
  const auto port = static_cast<uint16_t>(options.port);
  Error error;
  const auto address = asio::ip::make_address(options.host, error);
  if (!error) return tcp::endpoint(address, port);
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(options.host, "", tcp::resolver::passive, error);
  if (error || found.empty()) {
    return invalid_argument("host '" + options.host +
                            "' is no address of this machine: " + error.message());
  }
  for (const auto& entry : found) {  // as everybody means with localhost
    if (entry.endpoint().address().is_v4()) return tcp::endpoint(entry.endpoint().address(), port);
  }
  return tcp::endpoint(found.begin()->endpoint().address(), port);
}

// At most half of the descriptors that the system gives: models and files need some too.
size_t connections_allowed() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kConnectionsMax;
  return std::clamp<size_t>(limit.rlim_cur / 2, 1, kConnectionsMax);
}

// TLS 1.2 and later, with the system's choice of ciphers.
Status set_up_tls(const std::string& cert, const std::string& key, asio::ssl::context& tls) {
  Error error;
  tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                      asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                      asio::ssl::context::no_tlsv1_1,
                  error);
  // Nobody is there to type a password.
  if (!error) tls.set_password_callback([](size_t, auto) { return std::string(); }, error);
  if (!error) tls.use_certificate_chain_file(cert, error);
  if (error) {
    return invalid_argument("--tls-cert " + cert + ": is no certificate in PEM (" +
                            error.message() + ")");
  }
  tls.use_private_key_file(key, asio::ssl::context::pem, error);
  if (error) {
    return invalid_argument("--tls-key " + key + ": is no key in PEM without a password, or not " +
                            "that of " + cert + " (" + error.message() + ")");
  }
  return ok_status();
}

}  // namespace

struct HttpServer::Parts {
  std::optional<asio::ssl::context> tls;
  HttpContext context;  // before io, whose tasks hold connections that are listed in it
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::thread thread;
  int port = 0;
  size_t connections_max = connections_allowed();

  void accept();
  void on_accept(tcp::socket socket);
  void run();
};

void HttpServer::Parts::accept() {
  acceptor.async_accept([this](Error error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
    if (!error) {
      on_accept(std::move(socket));
      return accept();
    }
    pause.expires_after(kAcceptPause);
    pause.async_wait([this](Error cancelled) {
      if (!cancelled) accept();
    });
  });
}

void HttpServer::Parts::on_accept(tcp::socket socket) {
  const auto session = std::make_shared<HttpSession>(std::move(socket), context);
  if (context.sessions.size() <= connections_max) return session->run();
  for (HttpSession* other : context.sessions) {
    if (other == session.get() || !other->reading()) continue;
    other->shared_from_this()->close();
    return session->run();
  }
  session->refuse();
}

void HttpServer::Parts::run() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::bad_alloc&) {
      // The connection whose task it was ends with its task; the others go on.
    } catch (const std::exception&) {
    }
  }
}

Status check_tls_files(const std::string& cert, const std::string& key) {
  asio::ssl::context tls(asio::ssl::context::tls_server);
  return set_up_tls(cert, key, tls);
}

HttpServer::HttpServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
HttpServer::~HttpServer() { stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerOptions& options) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::make_unique<Parts>()));
  Parts& parts = *server->parts_;
  parts.context.body_bytes_max = options.body_bytes_max;
  TRY_ASSIGN(const tcp::endpoint endpoint, resolve(parts.io, options));
  if (!options.tls_cert.empty()) {
    TRY(set_up_tls(options.tls_cert, options.tls_key,
                   parts.tls.emplace(asio::ssl::context::tls_server)));
    parts.context.tls = &*parts.tls;
  }
  const std::string name = options.host + ":" + std::to_string(options.port);
  Error error;
  parts.acceptor.open(endpoint.protocol(), error);
  if (!error) parts.acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) parts.acceptor.bind(endpoint, error);
  if (!error) parts.acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return io_error(name + " is in use by another program; --port chooses another (0: any)");
  }
  if (error) return io_error(name + " cannot be listened on: " + error.message());
  parts.port = parts.acceptor.local_endpoint(error).port();
  return server;
}

int HttpServer::port() const { return parts_->port; }

void HttpServer::start(HttpHandler handler) {
  Parts& parts = *parts_;
  parts.context.handler = std::move(handler);
  parts.work.emplace(parts.io.get_executor());
  parts.accept();
  parts.thread = std::thread([&parts] { parts.run(); });
}

void HttpServer::post(std::function<void()> task) { asio::post(parts_->io, std::move(task)); }

void HttpServer::stop_accepting() {
  post([parts = parts_.get()] {
    Error ignored;
    parts->acceptor.close(ignored);
    parts->pause.cancel(ignored);
    parts->context.draining = true;
    std::vector<std::shared_ptr<HttpSession>> idle;
    for (HttpSession* session : parts->context.sessions) {
      if (session->reading()) idle.push_back(session->shared_from_this());
    }
    for (const auto& session : idle) session->close();
  });
}

void HttpServer::stop() {
  Parts& parts = *parts_;
  if (!parts.thread.joinable()) return;
  post([&parts] {
    Error ignored;
    parts.acceptor.close(ignored);
    parts.pause.cancel(ignored);
    parts.context.draining = true;
    std::vector<std::shared_ptr<HttpSession>> all;
    for (HttpSession* session : parts.context.sessions) all.push_back(session->shared_from_this());
    for (const auto& session : all) session->close();
    parts.work.reset();
  });
  parts.thread.join();
}

size_t HttpServer::connections() const { return parts_->context.connections.load(); }

}  // namespace kvikk
