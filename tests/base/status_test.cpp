#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kvikk {
namespace {

Status needs_even(int value) {
  if (value % 2 != 0) return invalid_argument("odd");
  return ok_status();
}

Result<int> half(int value) {
  TRY(needs_even(value));
  return value / 2;
}

Result<std::unique_ptr<int>> quarter(int value) {
  TRY_ASSIGN(const int once, half(value));
  TRY_ASSIGN(const int twice, half(once));
  return std::make_unique<int>(twice);
}

TEST(Status, CarriesItsCodeAndMessage) {
  EXPECT_TRUE(ok_status().ok());
  const Status status = damaged("a.gguf: short");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kDamaged);
  EXPECT_EQ(status.message(), "a.gguf: short");
}

TEST(Status, EveryKindHasItsOwnCode) {
  EXPECT_EQ(invalid_argument("").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(not_found("").code(), StatusCode::kNotFound);
  EXPECT_EQ(unsupported("").code(), StatusCode::kUnsupported);
  EXPECT_EQ(exhausted("").code(), StatusCode::kExhausted);
  EXPECT_EQ(cancelled("").code(), StatusCode::kCancelled);
  EXPECT_EQ(io_error("").code(), StatusCode::kIo);
}

TEST(Result, TryPassesValuesAndStopsAtTheFirstFailure) {
  Result<std::unique_ptr<int>> right = quarter(8);
  ASSERT_TRUE(right.ok());
  EXPECT_EQ(**right, 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_EQ(quarter(5).status().code(), StatusCode::kInvalidArgument);
}

TEST(ResultDeathTest, TheValueOfAFailureIsABug) {
  Result<int> failed = half(1);
  EXPECT_DEATH(static_cast<void>(failed.value()), "a Result is used as what it is; it holds: ");
  EXPECT_DEATH(static_cast<void>(Result<int>(ok_status())), "no failure");
}

}  // namespace
}  // namespace kvikk
