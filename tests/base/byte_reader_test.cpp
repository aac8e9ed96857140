#include "base/byte_reader.h"

#include <gtest/gtest.h>

namespace kvikk {
namespace {

TEST(ByteReaderTest, GivesWhatIsThereAndNoMore) {
  const std::vector<uint8_t> bytes = {1, 0, 0, 0, 2, 3, 4, 5, 6};
  ByteReader reader(bytes);
  uint32_t number = 0;
  ASSERT_TRUE(reader.get(number));
  EXPECT_EQ(number, 1u);
  std::vector<uint16_t> pairs = {9};
  EXPECT_FALSE(reader.get_all(3, pairs)) << "five bytes are left";
  EXPECT_FALSE(reader.get_all(SIZE_MAX / 2, pairs)) << "and no memory is taken for them";
  EXPECT_EQ(pairs, std::vector<uint16_t>{9});
  ASSERT_TRUE(reader.get_all(2, pairs));
  EXPECT_EQ(pairs, (std::vector<uint16_t>{0x0302, 0x0504}));
  EXPECT_FALSE(reader.get(number));
  EXPECT_FALSE(reader.take(2).has_value());
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(reader.take(1)->front(), 6);
  EXPECT_TRUE(reader.done());
}

TEST(ByteReaderTest, NothingIsAllowed) {
  ByteReader reader({});
  std::vector<float> none = {1};
  EXPECT_TRUE(reader.get_all(0, none));
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(reader.take(0)->empty());
  EXPECT_TRUE(reader.done());
}

}  // namespace
}  // namespace kvikk
