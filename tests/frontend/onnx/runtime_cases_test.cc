// Operators that ONNX's node tests do not cover, against numbers that ONNX Runtime computed
// (runtime_cases.txt, written by record_runtime_cases.py), and their gradients against differences.
#include <cmath>
#include <random>
#include <sstream>

#include "ir/training.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ir::HostTensor;

struct RuntimeCase {
  std::string name;
  std::string model;
  std::map<std::string, HostTensor> inputs;
  std::vector<HostTensor> outputs;
};

// "f32[2,3] 0.5 ..."
HostTensor ParseTensor(std::istringstream& in) {
  std::string type;
  in >> type;
  const size_t open = type.find('[');
  const ir::DType dtype = *ir::DTypeFromName(type.substr(0, open));
  std::istringstream extents(type.substr(open + 1, type.size() - open - 2));
  ir::Dims dims;
  for (std::string d; std::getline(extents, d, ',');) dims.push_back(std::stoll(d));
  std::vector<double> values;
  for (double v = 0; in >> v;) values.push_back(v);
  EXPECT_EQ(static_cast<int64_t>(values.size()), ir::ElementCount(dims)) << type;
  return ConvertTensor(HostTensor::FromVector(ir::DType::kF64, dims, values), dtype);
}

std::vector<RuntimeCase> ReadCases() {
  std::vector<RuntimeCase> cases;
  std::ifstream file(std::string(HYPER_SOURCE_DIR) + "/tests/frontend/onnx/runtime_cases.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string word, name;
    in >> word;
    if (word == "case") {
      in >> name;
      cases.push_back({name, {}, {}, {}});
    } else if (word == "model") {
      std::getline(in, cases.back().model);
    } else if (word == "in") {
      in >> name;
      cases.back().inputs.emplace(name, ParseTensor(in));
    } else if (word == "out") {
      in >> name;
      cases.back().outputs.push_back(ParseTensor(in));
    }
  }
  return cases;
}

class RuntimeCases : public ::testing::TestWithParam<RuntimeCase> {};

TEST_P(RuntimeCases, GiveTheRecordedNumbers) {
  const auto model = MustLoad(ParseModel(GetParam().model));
  const ImportedModel imported = MustImport(*model, {});
  const auto results = Evaluated(imported, "eval", GetParam().inputs);
  ASSERT_EQ(results.size(), GetParam().outputs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const HostTensor& want = GetParam().outputs[i];
    ASSERT_EQ(results[i].type(), want.type()) << "output " << i;
    for (int64_t k = 0; k < want.type().elements(); ++k) {
      if (ir::IsFloat(want.type().dtype)) {
        EXPECT_NEAR(results[i].ElementAsDouble(k), want.ElementAsDouble(k),
                    2e-5 * (1 + std::fabs(want.ElementAsDouble(k))))
            << "output " << i << ", element " << k;
      } else {
        EXPECT_EQ(results[i].ElementAsInt(k), want.ElementAsInt(k)) << i << "," << k;
      }
    }
  }
}

// In f64, all float inputs at once along random directions, with random cotangents on all float
// outputs.
TEST_P(RuntimeCases, HaveTheGradientsOfDifferences) {
  const auto model = MustLoad(ParseModel(GetParam().model));
  ImportOptions options;
  options.double_precision = true;
  ImportedModel imported = MustImport(*model, options);
  ir::Function& f = *imported.forward.module.Find("eval");
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> unit(-1, 1);
  const auto draw = [&](const ir::Dims& dims) {
    std::vector<double> values(static_cast<size_t>(ir::ElementCount(dims)));
    for (double& v : values) v = unit(random);
    return HostTensor::FromVector(ir::DType::kF64, dims, values);
  };
  std::vector<HostTensor> arguments;
  std::vector<ir::ValueId> wanted;
  std::vector<size_t> moved;
  for (const ir::Argument& a : f.arguments()) {
    HostTensor value = GetParam().inputs.at(a.name);
    if (ir::IsFloat(value.type().dtype)) {
      value = ConvertTensor(value, ir::DType::kF64);
      wanted.push_back(a.value);
      moved.push_back(arguments.size());
    }
    arguments.push_back(value);
  }
  ir::Builder b(&f);
  ir::ValueId loss;
  const std::vector<ir::FunctionResult> results = f.results();
  for (const ir::FunctionResult& r : results) {
    const ir::TensorType type = f.type(r.value);
    if (!ir::IsFloat(type.dtype)) continue;
    const ir::ValueId weighed = b.Binary(ir::ScalarOp::kMul, r.value, b.Constant(draw(type.dims)));
    ir::Dims axes;
    for (int d = 0; d < type.rank(); ++d) axes.push_back(d);
    const ir::ValueId term = b.Reduce("sum", weighed, axes);
    loss = loss.valid() ? b.Binary(ir::ScalarOp::kAdd, loss, term) : term;
  }
  const ir::ValueId seed = b.ScalarConstant(ir::DType::kF64, 1);
  Diagnostics diagnostics;
  const auto gradients = ir::AppendGradients(f, {{loss, seed}}, wanted, &diagnostics);
  ASSERT_TRUE(gradients.ok()) << gradients.status().message();
  f.ClearResults();
  f.AddResult(loss, "loss");
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_TRUE((*gradients)[i].valid()) << "no gradient for operand " << i;
    f.AddResult((*gradients)[i], "gradient");
  }
  ASSERT_TRUE(ir::Verify(f).ok());
  const auto at = ir::Evaluate(f, arguments);
  ASSERT_TRUE(at.ok());
  for (int direction = 0; direction < 4; ++direction) {
    std::vector<HostTensor> ahead = arguments, behind = arguments;
    const double step = 1e-5;
    double predicted = 0;
    for (size_t i = 0; i < moved.size(); ++i) {
      const HostTensor d = draw(arguments[moved[i]].type().dims);
      std::vector<double> up, down;
      for (int64_t k = 0; k < d.type().elements(); ++k) {
        const double x = arguments[moved[i]].ElementAsDouble(k);
        up.push_back(x + step * d.ElementAsDouble(k));
        down.push_back(x - step * d.ElementAsDouble(k));
        predicted += d.ElementAsDouble(k) * (*at)[i + 1].ElementAsDouble(k);
      }
      ahead[moved[i]] = HostTensor::FromVector(ir::DType::kF64, d.type().dims, up);
      behind[moved[i]] = HostTensor::FromVector(ir::DType::kF64, d.type().dims, down);
    }
    const auto plus = ir::Evaluate(f, ahead);
    const auto minus = ir::Evaluate(f, behind);
    ASSERT_TRUE(plus.ok() && minus.ok());
    const double difference =
        ((*plus)[0].ElementAsDouble(0) - (*minus)[0].ElementAsDouble(0)) / (2 * step);
    EXPECT_NEAR(predicted, difference, 1e-6 * (1 + std::fabs(difference)));
    EXPECT_GT(std::fabs(difference), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, RuntimeCases, ::testing::ValuesIn(ReadCases()),
                         [](const auto& info) { return info.param.name; });

// A loop of many steps must not sum its gradients step by step: nodes stay linear in steps.
TEST(UnrolledGradients, AreStackedInsteadOfSummed) {
  const auto nodes_of = [](int steps) {
    const auto model =
        MustLoad(GraphModel("g (float[" + std::to_string(steps) + R"(,1,2] x) => (float[1,1,3] h)
        <float[1,12,2] w = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,2,3,4,5,6,7,8},
         float[1,12,3] r = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}> {
        y, h = LSTM <hidden_size = 3> (x, w, r) })"));
    ImportOptions options;
    ImportedModel m = MustImport(*model, options);
    ir::Function& f = *m.forward.module.Find("eval");
    ir::Builder b(&f);
    const ir::ValueId loss = b.Reduce("sum", f.results()[0].value, {0, 1, 2});
    std::vector<ir::ValueId> wanted;
    for (const ir::Argument& a : f.arguments()) wanted.push_back(a.value);
    const auto gradients =
        ir::AppendGradients(f, {{loss, b.ScalarConstant(ir::DType::kF32, 1)}}, wanted, nullptr);
    EXPECT_TRUE(gradients.ok());
    // The gradients of w and r are one contraction over all steps each.
    for (ir::ValueId g : *gradients) EXPECT_TRUE(g.valid());
    int adds_of_weights = 0;
    for (ir::NodeId id : f.order()) {
      const ir::Node& node = f.node(id);
      adds_of_weights += node.role == ir::Role::kWeightGradient && node.op->name == "map";
    }
    EXPECT_EQ(adds_of_weights, 0);
    return f.order().size();
  };
  const size_t few = nodes_of(10);
  const size_t many = nodes_of(40);
  EXPECT_LE(many, 4 * few);
}

TEST(ContribOps, CachesAreRefused) {
  const auto model =
      MustLoad(ParseModel(R"(<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[1,1,4] q, float[1,1,4] k, float[1,1,4] v, float[1,2,3,2] pk, float[1,2,3,2] pv) => (float[1,1,4] y) {
      y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, "", "", "", pk, pv) })"));
  EXPECT_THAT(RefuseImport(*model, {}),
              ::testing::AllOf(::testing::HasSubstr("'pk'"),
                               ::testing::HasSubstr("no place in a training graph")));
}

// d(a + b)/da at another point than the graph's own, and a product through the graph.
TEST(GradientOperator, DifferentiatesAtItsOperands) {
  const auto model = MustLoad(ParseModel(R"(<ir_version: 8,
      opset_import: ["" : 17, "ai.onnx.preview.training" : 1]>
    g (float a, float b, float e) => (float c, float da, float db) {
      p = Mul(a, b) c = Mul(p, a)
      da, db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y = "c"> (a, e) })"));
  const auto scalar = [](float v) { return HostTensor::ScalarF32(v); };
  const auto r = Evaluated(MustImport(*model, {}), "eval",
                           {{"a", scalar(3)}, {"b", scalar(5)}, {"e", scalar(7)}});
  EXPECT_EQ(r[0].ElementAsDouble(0), 45);
  EXPECT_EQ(r[1].ElementAsDouble(0), 42);  // 2 a e
  EXPECT_EQ(r[2].ElementAsDouble(0), 9);   // a^2
}

// The two cases of ONNX's own suite.
TEST(GradientOperator, PassesTheSimpleTests) {
  for (const char* name : {"test_gradient_of_add", "test_gradient_of_add_and_mul"}) {
    const std::string folder = std::string(HYPER_SIMPLE_TESTS) + "/" + name;
    std::ifstream file(folder + "/model.onnx", std::ios::binary);
    onnx::ModelProto proto;
    ASSERT_TRUE(file && proto.ParseFromIstream(&file)) << folder;
    const auto read = [&](const std::string& path) {
      std::ifstream in(folder + "/test_data_set_0/" + path, std::ios::binary);
      onnx::TensorProto tensor;
      EXPECT_TRUE(in && tensor.ParseFromIstream(&in)) << path;
      return *ReadTensor(tensor, nullptr, nullptr);
    };
    std::map<std::string, HostTensor> inputs;
    for (int i = 0; i < proto.graph().input_size(); ++i) {
      inputs.emplace(proto.graph().input(i).name(), read("input_" + std::to_string(i) + ".pb"));
    }
    const int outputs = proto.graph().output_size();
    const auto model = MustLoad(proto);
    const auto r = Evaluated(MustImport(*model, {}), "eval", inputs);
    ASSERT_EQ(static_cast<int>(r.size()), outputs);
    for (int i = 0; i < outputs; ++i) {
      const HostTensor want = read("output_" + std::to_string(i) + ".pb");
      ASSERT_EQ(r[static_cast<size_t>(i)].type(), want.type());
      EXPECT_EQ(r[static_cast<size_t>(i)].ElementAsDouble(0), want.ElementAsDouble(0)) << name;
    }
  }
}

}  // namespace
}  // namespace hyper::onnx_frontend
