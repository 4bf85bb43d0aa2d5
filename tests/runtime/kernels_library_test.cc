// Library kernels against the reference kernels, over layouts, accumulation and odd extents; each
// in a workspace of exactly the size that the compiler is told, between guards.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "ir/op_def.h"
#include "ir/reference/reference.h"
#include "runtime/kernels/dot_plan.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/workspace.h"

namespace hyper::runtime {
namespace {

constexpr int64_t kArenaBytes = 64 << 20;

// Operands laid out one after another in an arena, each in a random dense order of its dims.
class Bench {
 public:
  explicit Bench(int threads = 2)
      : arena_(std::move(Arena::Create(kArenaBytes)).value()), team_(threads) {}

  program::Operand Add(const ir::Dims& dims, const std::vector<int>& order,
                       program::Access access) {
    program::Operand operand;
    operand.set_dtype(program::F32);
    operand.set_access(access);
    ir::Dims strides(dims.size(), 1);
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[static_cast<size_t>(order[i])] = stride;
      stride *= dims[static_cast<size_t>(order[i])];
    }
    for (size_t d = 0; d < dims.size(); ++d) {
      operand.add_dims(dims[d]);
      operand.add_strides(strides[d]);
    }
    operand.set_offset(next_);
    operand.set_begin(next_);
    operand.set_end(next_ + stride * 4);
    next_ += (stride * 4 + 63) / 64 * 64;
    float* data = reinterpret_cast<float*>(arena_->data() + operand.offset());
    for (int64_t i = 0; i < stride; ++i) data[i] = distribution_(generator_);
    return operand;
  }
  PrepareContext Context() {
    PrepareContext context;
    context.arena = arena_->data();
    context.team = &team_;
    context.planned_threads = team_.size();
    return context;
  }

  // A workspace of `bytes` bytes filled with NaN, between guards of the same pattern.
  program::Operand AddWorkspace(int64_t bytes) {
    program::Operand operand;
    operand.set_dtype(program::U8);
    operand.set_access(program::WORKSPACE);
    operand.add_dims(bytes);
    operand.add_strides(1);
    next_ += kGuard;
    operand.set_offset(next_);
    operand.set_begin(next_);
    operand.set_end(next_ + bytes);
    std::memset(arena_->data() + next_ - kGuard, 0xFF, static_cast<size_t>(bytes + 2 * kGuard));
    next_ = (next_ + bytes + kGuard + 63) / 64 * 64;
    return operand;
  }
  bool GuardsStand(const program::Operand& workspace) const {
    const auto painted = [&](int64_t begin, int64_t end) {
      return std::all_of(arena_->data() + begin, arena_->data() + end,
                         [](char byte) { return static_cast<unsigned char>(byte) == 0xFF; });
    };
    return painted(workspace.begin() - kGuard, workspace.begin()) &&
           painted(workspace.end(), workspace.end() + kGuard);
  }

  std::vector<float> Dense(const program::Operand& operand) const {
    std::vector<float> values(static_cast<size_t>(TypeOf(operand).elements()));
    CopyToDense(operand, arena_->data(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  const Team& team() const { return team_; }
  std::mt19937& generator() { return generator_; }

 private:
  std::unique_ptr<Arena> arena_;
  static constexpr int64_t kGuard = 4096;

  Team team_;
  int64_t next_ = 0;
  std::mt19937 generator_{5};
  std::uniform_real_distribution<float> distribution_{-1, 1};
};

double NormwiseError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

// Runs the prepared kernel and the reference on the same operands (two inputs, one output).
void ExpectSameAsReference(Bench& bench, const std::string& op, const ir::Attributes& attributes,
                           std::vector<program::Operand> operands, const std::string& what) {
  std::vector<std::vector<float>> values;
  std::vector<ir::TensorType> types;
  for (const program::Operand& operand : operands) {
    values.push_back(bench.Dense(operand));
    types.push_back(TypeOf(operand));
  }
  const bool accumulate = operands[2].access() == program::ACCUMULATE;
  const std::vector<ir::ConstTensorRef> inputs = {
      {&types[0], reinterpret_cast<const std::byte*>(values[0].data())},
      {&types[1], reinterpret_cast<const std::byte*>(values[1].data())}};
  const std::vector<ir::TensorRef> outputs = {
      {&types[2], reinterpret_cast<std::byte*>(values[2].data())}};
  ASSERT_TRUE(ir::RunReference(*ir::CoreOp(op), attributes, -1, inputs, outputs, accumulate).ok());

  program::LibraryCall call;
  call.set_primitive(op == "dot" ? "onednn.matmul" : "onednn.conv");
  call.set_op(op);
  const auto cap = WorkspaceCap(call.primitive(), op, attributes, operands, bench.team().size());
  ASSERT_TRUE(cap.ok()) << what << ": " << cap.status().ToString();
  if (*cap > 0) operands.push_back(bench.AddWorkspace(*cap));
  auto kernel = PrepareLibrary(call, attributes, operands, bench.Context());
  ASSERT_TRUE(kernel.ok()) << what << ": " << kernel.status().ToString();
  omp_set_num_threads(bench.team().size());
  ASSERT_TRUE((*kernel)->Run(bench.team()).ok()) << what;
  if (*cap > 0) {
    EXPECT_TRUE(bench.GuardsStand(operands.back())) << what;
  }
  const std::vector<float> actual = bench.Dense(operands[2]);
  EXPECT_LE(NormwiseError(actual, values[2]), 2e-6) << what;
}

std::vector<int> Order(int rank) {
  std::vector<int> order(static_cast<size_t>(rank));
  for (int d = 0; d < rank; ++d) order[static_cast<size_t>(d)] = d;
  return order;
}

struct DotCase {
  std::string spec;
  ir::Dims a, b, y;
  std::vector<int> order_a, order_b, order_y;  // empty: row-major
};

TEST(Matmul, MatchesTheReferenceOnAllLayouts) {
  const std::vector<DotCase> cases = {
      {"mk,kn->mn", {7, 5}, {5, 9}, {7, 9}, {}, {}, {}},
      {"mk,nk->mn", {7, 5}, {9, 5}, {7, 9}, {}, {}, {}},
      {"mk,kn->nm", {7, 5}, {5, 9}, {9, 7}, {}, {}, {}},
      {"mk,kn->mn", {7, 5}, {5, 9}, {7, 9}, {1, 0}, {1, 0}, {1, 0}},
      {"bsk,kn->bsn", {3, 4, 5}, {5, 6}, {3, 4, 6}, {}, {}, {}},
      {"bsk,bsn->kn", {3, 4, 5}, {3, 4, 6}, {5, 6}, {}, {}, {}},
      {"bhqd,bhkd->bhqk", {2, 3, 4, 5}, {2, 3, 6, 5}, {2, 3, 4, 6}, {0, 2, 1, 3}, {0, 2, 1, 3}, {}},
      {"bhqk,bhkd->bhqd", {2, 3, 4, 6}, {2, 3, 6, 5}, {2, 3, 4, 5}, {}, {0, 2, 1, 3}, {0, 2, 1, 3}},
      {"bmk,kn->bmn", {2, 1, 5}, {5, 1}, {2, 1, 1}, {}, {}, {}},
      {"k,k->", {17}, {17}, {}, {}, {}, {}},
      {"m,n->mn", {4}, {3}, {4, 3}, {}, {}, {}},
      {"mk,k->m", {4, 7}, {7}, {4}, {}, {}, {}},
      {"k,kn->n", {7}, {7, 3}, {3}, {}, {}, {}},
      {"bm,bm->bm", {3, 5}, {3, 5}, {3, 5}, {}, {}, {}},
      // Rows of b a page apart: packed first.
      {"mk,kn->mn", {5, 3}, {3, 1024}, {5, 1024}, {}, {}, {}},
      {"mk,kn->mn", {0, 5}, {5, 9}, {0, 9}, {}, {}, {}},
      {"mk,kn->mn", {4, 0}, {0, 9}, {4, 9}, {}, {}, {}},
  };
  for (const program::Access access : {program::WRITE, program::ACCUMULATE}) {
    for (const DotCase& c : cases) {
      Bench bench;
      const auto order = [](const std::vector<int>& given, const ir::Dims& dims) {
        return given.empty() ? Order(static_cast<int>(dims.size())) : given;
      };
      ir::Attributes attributes;
      attributes.Set("spec", c.spec);
      const std::vector<program::Operand> operands = {
          bench.Add(c.a, order(c.order_a, c.a), program::READ),
          bench.Add(c.b, order(c.order_b, c.b), program::READ),
          bench.Add(c.y, order(c.order_y, c.y), access)};
      ExpectSameAsReference(bench, "dot", attributes, operands,
                            fmt::format("{} access {}", c.spec, static_cast<int>(access)));
    }
  }
}

TEST(Matmul, SaysWhichLayoutsItCannotDo) {
  // k and l contract, but do not nest in b.
  const auto plan =
      PlanDot("mkl,lkn->mn", {{2, 3, 4}, {12, 4, 1}}, {{4, 3, 5}, {15, 5, 1}}, {{2, 5}, {5, 1}});
  EXPECT_EQ(plan.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(plan.status().message().find("mkl,lkn->mn"), std::string::npos);
}

TEST(Convolution, MatchesTheReference) {
  struct Case {
    int64_t n, c, size, o, kernel, stride, dilation, low, high, groups;
  };
  const std::vector<Case> cases = {
      {2, 3, 9, 4, 3, 1, 1, 1, 1, 1}, {2, 16, 8, 16, 3, 2, 1, 1, 1, 1},
      {1, 8, 7, 8, 7, 1, 1, 3, 3, 8}, {2, 4, 9, 6, 3, 1, 2, 2, 2, 2},
      {1, 1, 5, 1, 1, 1, 1, 0, 0, 1}, {3, 16, 6, 32, 1, 2, 1, 0, 0, 1},
      {2, 5, 8, 7, 4, 3, 1, 2, 1, 1},
  };
  for (const bool channels_last : {true, false}) {
    for (const Case& c : cases) {
      for (const std::string op : {"conv", "conv_grad_input", "conv_grad_weight"}) {
        for (const program::Access access : {program::WRITE, program::ACCUMULATE}) {
          if (access == program::ACCUMULATE && op != "conv_grad_weight") continue;
          Bench bench;
          const int64_t out =
              (c.size + c.low + c.high - c.dilation * (c.kernel - 1) - 1) / c.stride + 1;
          const ir::Dims x = {c.n, c.c, c.size, c.size};
          const ir::Dims w = {c.o, c.c / c.groups, c.kernel, c.kernel};
          const ir::Dims y = {c.n, c.o, out, out};
          ir::Attributes attributes;
          attributes.Set("strides", ir::Dims{c.stride, c.stride});
          attributes.Set("dilations", ir::Dims{c.dilation, c.dilation});
          attributes.Set("pads_low", ir::Dims{c.low, c.low});
          attributes.Set("pads_high", ir::Dims{c.high, c.high});
          attributes.Set("groups", c.groups);
          if (op == "conv_grad_input") attributes.Set("input_shape", x);
          if (op == "conv_grad_weight") attributes.Set("weight_shape", w);
          const std::vector<int> activation =
              channels_last ? std::vector<int>{0, 2, 3, 1} : Order(4);
          std::vector<program::Operand> operands;
          if (op == "conv") {
            operands = {bench.Add(x, activation, program::READ),
                        bench.Add(w, Order(4), program::READ), bench.Add(y, activation, access)};
          } else if (op == "conv_grad_input") {
            operands = {bench.Add(y, activation, program::READ),
                        bench.Add(w, Order(4), program::READ), bench.Add(x, activation, access)};
          } else {
            operands = {bench.Add(y, activation, program::READ),
                        bench.Add(x, activation, program::READ), bench.Add(w, Order(4), access)};
          }
          ExpectSameAsReference(bench, op, attributes, operands,
                                fmt::format("{} c{} o{} k{} s{} d{} g{} channels_last {} access {}",
                                            op, c.c, c.o, c.kernel, c.stride, c.dilation, c.groups,
                                            channels_last, static_cast<int>(access)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace hyper::runtime
