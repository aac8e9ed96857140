// Who is let in.

#include "serving/access.h"

#include <gtest/gtest.h>

namespace kvikk {
namespace {

HttpRequest with(std::vector<HttpHeader> headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  return request;
}

TEST(ApiKeys, FindsEachKeyInEachHeader) {
  const auto keys = ApiKeys::parse("alpha\n# none\nanna beta\r\n\n", "keys");
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  EXPECT_EQ(keys->find(with({{"authorization", "Bearer alpha"}})), 0u);
  EXPECT_EQ(keys->find(with({{"authorization", "bearer  beta"}})), 1u);
  EXPECT_EQ(keys->find(with({{"x-api-key", "beta"}})), 1u);
  EXPECT_EQ(keys->find(with({{"authorization", "Basic OmFscGhh"}})), 0u);  // ":alpha"
  EXPECT_EQ(keys->name(0), "key 1");
  EXPECT_EQ(keys->name(1), "anna");
}

TEST(ApiKeys, FindsNothingElse) {
  const auto keys = ApiKeys::parse("alpha", "keys");
  ASSERT_TRUE(keys.ok());
  for (const char* value : {"", "alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa",
                            "Basic", "Basic ====", "Basic YWxwaGE=", "Basic OmFscGh", "Digest x"}) {
    EXPECT_FALSE(keys->find(with({{"authorization", value}})).has_value()) << value;
  }
  EXPECT_FALSE(keys->find(with({})).has_value());
  EXPECT_FALSE(keys->find(with({{"x-api-key", ""}})).has_value());
}

TEST(ApiKeys, RefusesFilesWithoutKeys) {
  for (const char* text : {"", "\n\n", "# only this", "a b c"}) {
    EXPECT_EQ(ApiKeys::parse(text, "keys").status().code(), StatusCode::kInvalidArgument) << text;
  }
  const auto third = ApiKeys::parse("a\nb\nc d e\n", "keys");
  EXPECT_NE(third.status().message().find("keys:3"), std::string::npos);
}

TEST(Access, HostsThatNameThisMachine) {
  for (const char* host :
       {"localhost", "LocalHost:80", "127.0.0.1", "10.0.0.7:8080", "[::1]", "[fe80::1]:99"}) {
    EXPECT_TRUE(is_allowed_host(host, {})) << host;
  }
  for (const char* host : {"", ":80", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io",
                           "127.0.0.1x", "localhost@evil.example", "[::1", "1.2.3.4/x"}) {
    EXPECT_FALSE(is_allowed_host(host, {})) << host;
  }
  EXPECT_TRUE(is_allowed_host("Box.Example:80", {"box.example"}));
  EXPECT_FALSE(is_allowed_host("box.example.org", {"box.example"}));
}

TEST(Access, OriginsOfOtherPages) {
  EXPECT_FALSE(is_foreign_origin(with({{"host", "localhost:80"}})));
  EXPECT_FALSE(
      is_foreign_origin(with({{"host", "localhost:80"}, {"origin", "http://localhost:80"}})));
  for (const char* origin : {"http://localhost:81", "http://evil.example", "null", "",
                             "http://localhost:80.evil.example"}) {
    EXPECT_TRUE(is_foreign_origin(with({{"host", "localhost:80"}, {"origin", origin}}))) << origin;
  }
}

}  // namespace
}  // namespace kvikk
