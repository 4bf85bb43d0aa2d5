#include <algorithm>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data/dataset.h"
#include "runtime/data/random.h"
#include "runtime/data/tensor_file.h"
#include "tests/runtime/test_files.h"

namespace hyper::runtime {
namespace {

using testing::BytesOf;
using ::testing::ElementsAre;
using testing::Gzip;
using ::testing::HasSubstr;
using testing::IdxBytes;
using testing::NpyBytes;
using testing::TestFolder;

template <typename T>
std::vector<T> ReadSample(const Dataset& data, int input, int64_t sample) {
  const InputSpec& spec = data.inputs()[static_cast<size_t>(input)];
  std::vector<T> values(static_cast<size_t>(spec.SampleElements()));
  const Status status = data.Read(input, sample, reinterpret_cast<std::byte*>(values.data()));
  EXPECT_TRUE(status.ok()) << status.ToString();
  return values;
}

strategy::DataSource Source(strategy::DataKind kind, const std::string& path) {
  strategy::DataSource source;
  source.kind = kind;
  source.path = path;
  return source;
}

TEST(Idx, PlainGzippedAndBigEndian) {
  const TestFolder folder;
  const std::string pixels = IdxBytes(8, {3, 2, 2}, "abcdefghijkl");
  folder.Write("plain", pixels);
  folder.Write("packed.gz", Gzip(pixels));
  folder.Write("members.gz", Gzip(pixels.substr(0, 7)) + Gzip(pixels.substr(7)));
  // "packed" alone finds packed.gz.
  for (const char* name : {"plain", "packed", "packed.gz", "members.gz"}) {
    const auto tensor = ReadIdxFile(folder.File(name));
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(tensor->type().ToString(), "u8[3,2,2]");
    EXPECT_EQ(tensor->ElementAsInt(11), 'l');
  }
  folder.Write("ints", IdxBytes(0x0C, {2}, std::string("\0\0\1\2\xFF\xFF\xFF\xFE", 8)));
  const auto ints = ReadIdxFile(folder.File("ints"));
  ASSERT_TRUE(ints.ok());
  EXPECT_EQ(ints->ElementAsInt(0), 258);
  EXPECT_EQ(ints->ElementAsInt(1), -2);
}

TEST(Idx, DamageIsNamed) {
  const TestFolder folder;
  const std::string good = IdxBytes(8, {3, 2}, "abcdef");
  const auto fails = [&](const std::string& name, const std::string& bytes, StatusCode code,
                         const std::string& text) {
    const auto tensor = ReadIdxFile(folder.Write(name, bytes));
    ASSERT_FALSE(tensor.ok()) << name;
    EXPECT_EQ(tensor.status().code(), code) << tensor.status().ToString();
    EXPECT_THAT(tensor.status().message(), HasSubstr(text));
    EXPECT_THAT(tensor.status().message(), HasSubstr(folder.File(name)));
  };
  fails("short", good.substr(0, good.size() - 1), StatusCode::kDataLoss, "holds 5 bytes");
  fails("long", good + "x", StatusCode::kDataLoss, "holds 7 bytes");
  fails("text", "hello", StatusCode::kInvalidArgument, "not an IDX file");
  fails("empty", "", StatusCode::kInvalidArgument, "not an IDX file");
  fails("type", IdxBytes(7, {1}, "a"), StatusCode::kInvalidArgument, "0x07");
  fails("huge", IdxBytes(8, {0x7fffffff, 0x7fffffff, 0x7fffffff}, "a"), StatusCode::kDataLoss,
        "more than addressable");
  fails("header", good.substr(0, 6), StatusCode::kDataLoss, "6 bytes");
  const std::string packed = Gzip(good);
  fails("cut.gz", packed.substr(0, packed.size() - 5), StatusCode::kDataLoss, "ends inside");
  fails("foreign.gz", good, StatusCode::kDataLoss, "gzip");
  std::string flipped = packed;
  flipped[flipped.size() - 6] ^= 1;  // the checksum
  fails("flipped.gz", flipped, StatusCode::kDataLoss, "gzip");
  // The header bounds what is inflated, whatever follows.
  fails("more.gz", Gzip(good + std::string(3 << 20, '\0')), StatusCode::kDataLoss,
        "more than the 18 bytes that its header announces");
  fails("less.gz", Gzip(good.substr(0, good.size() - 2)), StatusCode::kDataLoss, "holds 4 bytes");
  fails("huge.gz", Gzip(IdxBytes(8, {0x7fffffff, 0x7fffffff, 0x7fffffff}, "a")),
        StatusCode::kDataLoss, "more than addressable");
  const auto missing = ReadIdxFile(folder.File("missing"));
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr(folder.File("missing")));
}

TEST(Npy, VersionsAndTypes) {
  const TestFolder folder;
  const std::string data = BytesOf<float>({1, 2, 3, 4, 5, 6});
  for (const char version : {'\1', '\2'}) {
    const auto tensor =
        ReadNpyFile(folder.Write("a.npy", NpyBytes("<f4", "(3, 2)", data, version)));
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(tensor->type().ToString(), "f32[3,2]");
    EXPECT_EQ(tensor->ElementAsDouble(5), 6);
  }
  const auto vector =
      ReadNpyFile(folder.Write("b.npy", NpyBytes("<i8", "(2,)", BytesOf<int64_t>({7, -8}))));
  ASSERT_TRUE(vector.ok());
  EXPECT_EQ(vector->ElementAsInt(1), -8);
}

TEST(Npy, RefusalsSayWhatIsAccepted) {
  const TestFolder folder;
  const auto message = [&](const std::string& bytes) {
    const auto tensor = ReadNpyFile(folder.Write("x.npy", bytes));
    EXPECT_FALSE(tensor.ok());
    return tensor.status().message();
  };
  EXPECT_THAT(message(NpyBytes(">f4", "(1,)", "abcd")), HasSubstr("'>f4'; read are <f4"));
  EXPECT_THAT(message(NpyBytes("<f4", "(1,)", "abcd", 1, "True")), HasSubstr("ascontiguousarray"));
  EXPECT_THAT(message(NpyBytes("<f4", "(2,)", "abcd")), HasSubstr("f32[2] (8 bytes) but holds 4"));
  EXPECT_THAT(message(NpyBytes("<f4", "()", "abcd")), HasSubstr("scalar"));
  EXPECT_THAT(message(NpyBytes("<f4", "(x,)", "abcd")), HasSubstr("shape"));
  EXPECT_THAT(message(NpyBytes("<f4", "(9223372036854775807, 8)", "")), HasSubstr("addressable"));
  EXPECT_THAT(message("\x93NUMPY\x01"), HasSubstr("not a NumPy"));
  EXPECT_THAT(message(NpyBytes("<f4", "(1,)", "abcd").substr(0, 40)),
              HasSubstr("inside its header"));
}

// Every single bit of small files, and every cut: refused, or a tensor inside its bytes.
TEST(TensorFiles, EveryBitAndEveryCut) {
  const std::string idx = IdxBytes(0x0C, {2, 1, 2}, std::string(16, '\1'));
  const std::string npy = NpyBytes("<f4", "(2, 2)", std::string(16, '\1'), 2);
  const auto parse = [](const std::string& text, bool is_idx) {
    const auto bytes = std::make_shared<const std::string>(text);
    const FileBytes file{bytes, std::as_bytes(std::span(bytes->data(), bytes->size()))};
    const auto tensor = is_idx ? ParseIdx(file, "f") : ParseNpy(file, "f");
    if (!tensor.ok()) return false;
    for (int64_t i = 0; i < tensor->type().elements(); ++i) (void)tensor->ElementAsDouble(i);
    return true;
  };
  for (const bool is_idx : {true, false}) {
    const std::string& good = is_idx ? idx : npy;
    ASSERT_TRUE(parse(good, is_idx));
    int refused = 0;
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      refused += !parse(bad, is_idx);
    }
    EXPECT_GT(refused, 60);
    for (size_t length = 0; length < good.size(); ++length) {
      EXPECT_FALSE(parse(good.substr(0, length), is_idx)) << length;
    }
  }
}

TEST(TensorFiles, EveryBitOfAGzipFile) {
  const TestFolder folder;
  const std::string good = Gzip(IdxBytes(8, {3, 4}, "abcdabcdabcd"));
  int refused = 0;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    refused += !ReadIdxFile(folder.Write("x.gz", bad)).ok();
  }
  EXPECT_GT(refused, 200);  // a time stamp or a name in the header may be anything
}

TEST(Dataset, ImagesAndLabelsFromIdx) {
  const TestFolder folder;
  std::string pixels(3 * 4, '\0');
  std::iota(pixels.begin(), pixels.end(), static_cast<char>(100));
  folder.Write("images", IdxBytes(8, {3, 2, 2}, pixels));
  folder.Write("labels", IdxBytes(8, {3}, std::string("\0\2\1", 3)));
  strategy::DataSource source = Source(strategy::DataKind::kIdx, folder.path());
  source.inputs["image"] = {.file = "images", .scale = 0.5, .mean = 50, .std = 2};
  source.inputs["label"] = {.file = "labels"};
  // [3,2,2] feeds [B,1,2,2].
  const std::vector<InputSpec> specs = {{"image", {ir::DType::kF32, {8, 1, 2, 2}}},
                                        {"label", {ir::DType::kI64, {8}}}};
  const auto data = Dataset::Create(source, specs, {{"label", {3, {}}}}, 0);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->samples(), 3);
  EXPECT_THAT(ReadSample<float>(**data, 0, 1), ElementsAre(1.f, 1.25f, 1.5f, 1.75f));
  EXPECT_THAT(ReadSample<int64_t>(**data, 1, 1), ElementsAre(2));

  const auto outside = Dataset::Create(source, specs, {{"label", {2, -1}}}, 0);
  EXPECT_EQ(outside.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(outside.status().message(), "'" + folder.File("labels") +
                                            "': label 2 of sample 1 (position 0 in it) is outside "
                                            "the classes; accepted are 0 to 1 and -1 (ignored)");
  EXPECT_TRUE(Dataset::Create(source, specs, {{"label", {2, 2}}}, 0).ok());
}

TEST(Dataset, MismatchesNameFileAndInput) {
  const TestFolder folder;
  folder.Write("a.npy", NpyBytes("<f4", "(2, 3)", BytesOf<float>({1, 2, 3, 4, 5, 6})));
  folder.Write("b.npy", NpyBytes("<i8", "(3,)", BytesOf<int64_t>({0, 1, 70000000000})));
  strategy::DataSource source = Source(strategy::DataKind::kNpy, folder.path());
  source.inputs["x"].file = "a.npy";
  const auto message = [&](std::vector<InputSpec> specs) {
    const auto data = Dataset::Create(source, std::move(specs), {}, 0);
    EXPECT_FALSE(data.ok());
    return data.status().message();
  };
  EXPECT_THAT(
      message({{"x", {ir::DType::kF32, {4, 2, 2}}}}),
      ::testing::AllOf(HasSubstr("a.npy' is f32[2,3]"), HasSubstr("input 'x' is f32[4,2,2]")));
  folder.Write("flat.npy", NpyBytes("<f4", "(1, 6)", BytesOf<float>({1, 2, 3, 4, 5, 6})));
  source.inputs["x"].file = "flat.npy";
  // Equal element counts are not enough.
  EXPECT_THAT(message({{"x", {ir::DType::kF32, {4, 2, 3}}}}), HasSubstr("samples of shape [2,3]"));
  source.inputs["x"].file = "a.npy";
  EXPECT_THAT(message({{"x", {ir::DType::kF32, {4, 3, 1}}}, {"y", {ir::DType::kI64, {4}}}}),
              HasSubstr("no data for input 'y' i64[4]"));
  EXPECT_THAT(message({{"x", {ir::DType::kI64, {4, 3}}}}), HasSubstr("f32 data cannot feed"));
  source.inputs["xx"].file = "a.npy";
  EXPECT_THAT(message({{"x", {ir::DType::kF32, {4, 3}}}}),
              HasSubstr("names 'xx', which is no input"));
  source.inputs.erase("xx");
  source.inputs["y"].file = "b.npy";
  EXPECT_THAT(message({{"x", {ir::DType::kF32, {4, 3}}}, {"y", {ir::DType::kI64, {4}}}}),
              ::testing::AllOf(HasSubstr("a.npy' has 2 samples"), HasSubstr("b.npy' has 3")));
  source.inputs.erase("x");
  source.inputs["y"].scale = 2;
  EXPECT_THAT(message({{"y", {ir::DType::kI64, {4}}}}), HasSubstr("scale, mean and std"));
  source.inputs["y"].scale = 1;
  const auto narrow = Dataset::Create(source, {{"y", {ir::DType::kI32, {4}}}}, {}, 0);
  ASSERT_TRUE(narrow.ok());
  int32_t value = 0;
  EXPECT_TRUE((*narrow)->Read(0, 1, reinterpret_cast<std::byte*>(&value)).ok());
  EXPECT_EQ(value, 1);
  EXPECT_THAT((*narrow)->Read(0, 2, reinterpret_cast<std::byte*>(&value)).message(),
              HasSubstr("sample 2"));
  source.inputs["y"].file = "gone.npy";
  EXPECT_THAT(message({{"y", {ir::DType::kI64, {4}}}}), HasSubstr("gone.npy"));
}

TEST(Dataset, FloatArraysArriveBitForBit) {
  const TestFolder folder;
  const std::vector<double> values = {1.0 / 3, -1e300, 5e-324};
  folder.Write("d.npy", NpyBytes("<f8", "(3, 1)", BytesOf(values)));
  folder.Write("h.npy", NpyBytes("<f2", "(3,)", BytesOf<uint16_t>({0x3C00, 0xC000, 0x0001})));
  strategy::DataSource source = Source(strategy::DataKind::kNpy, folder.path());
  source.inputs["x"].file = "d.npy";
  source.inputs["h"].file = "h.npy";
  const auto data = Dataset::Create(
      source, {{"x", {ir::DType::kF64, {2, 1}}}, {"h", {ir::DType::kF32, {2}}}}, {}, 0);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadSample<double>(**data, 0, i)[0], values[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(ReadSample<float>(**data, 1, 0)[0], 1.f);
  EXPECT_EQ(ReadSample<float>(**data, 1, 1)[0], -2.f);
  EXPECT_EQ(ReadSample<float>(**data, 1, 2)[0], 0x1p-24f);
}

TEST(Dataset, TokenWindows) {
  const TestFolder folder;
  std::vector<uint16_t> tokens(12);
  std::iota(tokens.begin(), tokens.end(), uint16_t{500});
  strategy::DataSource source =
      Source(strategy::DataKind::kTokens, folder.Write("t.bin", BytesOf(tokens)));
  source.inputs["ids"].field = "tokens";
  source.inputs["labels"].field = "next_tokens";
  const std::vector<InputSpec> specs = {{"ids", {ir::DType::kI64, {2, 4}}},
                                        {"labels", {ir::DType::kI32, {2, 4}}}};
  const auto data = Dataset::Create(source, specs, {{"labels", {512, {}}}}, 0);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->samples(), 2);  // 8 inputs need 9 tokens, a third window 13
  EXPECT_THAT(ReadSample<int64_t>(**data, 0, 1), ElementsAre(504, 505, 506, 507));
  EXPECT_THAT(ReadSample<int32_t>(**data, 1, 1), ElementsAre(505, 506, 507, 508));
  const auto outside = Dataset::Create(source, specs, {{"labels", {511, {}}}}, 0);
  EXPECT_THAT(outside.status().message(), HasSubstr("token 511 at index 11"));

  source.path = folder.Write("odd.bin", "abc");
  EXPECT_EQ(Dataset::Create(source, specs, {}, 0).status().code(), StatusCode::kDataLoss);
  source.path = folder.Write("few.bin", "abcdefgh");
  EXPECT_THAT(Dataset::Create(source, specs, {}, 0).status().message(),
              HasSubstr("has 4 tokens; one sample of input 'ids' needs 5"));
  source.path = folder.File("none.bin");
  EXPECT_EQ(Dataset::Create(source, specs, {}, 0).status().code(), StatusCode::kNotFound);
}

TEST(Dataset, SyntheticIsSeededAndInRange) {
  strategy::DataSource source = Source(strategy::DataKind::kSynthetic, "");
  source.inputs["n"].field = "normal";
  source.inputs["u"] = {.field = "uniform", .low = -2, .high = 6};
  source.inputs["k"] = {.field = "integers", .low = 0, .high = 10};
  const std::vector<InputSpec> specs = {{"n", {ir::DType::kF64, {2, 50}}},
                                        {"u", {ir::DType::kF32, {2, 50}}},
                                        {"k", {ir::DType::kI64, {2}}}};
  const auto data = Dataset::Create(source, specs, {{"k", {10, {}}}}, 3);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->samples(), kSyntheticSamples);
  double sum = 0, squares = 0;
  std::set<int64_t> classes;
  for (int64_t i = 0; i < kSyntheticSamples; ++i) {
    for (const double v : ReadSample<double>(**data, 0, i)) {
      sum += v;
      squares += v * v;
    }
    for (const float v : ReadSample<float>(**data, 1, i)) {
      ASSERT_GE(v, -2);
      ASSERT_LE(v, 6);
    }
    classes.insert(ReadSample<int64_t>(**data, 2, i)[0]);
  }
  const double n = 50.0 * kSyntheticSamples;
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_EQ(classes.size(), 10u);
  EXPECT_EQ(*classes.begin(), 0);
  const auto same = Dataset::Create(source, specs, {}, 3);
  const auto other = Dataset::Create(source, specs, {}, 4);
  EXPECT_EQ(ReadSample<double>(**data, 0, 9), ReadSample<double>(**same, 0, 9));
  EXPECT_NE(ReadSample<double>(**data, 0, 9), ReadSample<double>(**other, 0, 9));
  EXPECT_FALSE(Dataset::Create(source, specs, {{"k", {9, {}}}}, 3).ok());
}

TEST(Permutation, IsABijectionThatDependsOnSeedAndEpoch) {
  for (const int64_t size : {1, 2, 3, 5, 16, 17, 1000, 60000}) {
    std::vector<int64_t> seen;
    const Permutation permutation(size, 1, 0);
    for (int64_t i = 0; i < size; ++i) seen.push_back(permutation.At(i));
    if (size >= 1000) {
      const Permutation next(size, 1, 1), other(size, 2, 0);
      int64_t equal_epoch = 0, equal_seed = 0, fixed = 0;
      for (int64_t i = 0; i < size; ++i) {
        equal_epoch += next.At(i) == seen[static_cast<size_t>(i)];
        equal_seed += other.At(i) == seen[static_cast<size_t>(i)];
        fixed += seen[static_cast<size_t>(i)] == i;
      }
      // One each is expected; 12 would be a freak.
      EXPECT_LT(equal_epoch, 12);
      EXPECT_LT(equal_seed, 12);
      EXPECT_LT(fixed, 12);
    }
    std::sort(seen.begin(), seen.end());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i) << size;
  }
}

TEST(Permutation, FirstHalfIsEvenlySpread) {
  // Of 1000 samples, 500 drawn first: each block of 100 must give near 50.
  const Permutation permutation(1000, 5, 3);
  int64_t counts[10] = {};
  for (int64_t i = 0; i < 500; ++i) ++counts[permutation.At(i) / 100];
  for (const int64_t count : counts) {
    EXPECT_GT(count, 30);
    EXPECT_LT(count, 70);
  }
}

}  // namespace
}  // namespace hyper::runtime
