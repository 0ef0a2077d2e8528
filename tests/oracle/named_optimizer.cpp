#include "tests/oracle/named_optimizer.h"

#include "aio/words/error.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <map>

namespace penstock::oracle {
namespace {

// What was said; each read takes its option out, so that what is left is unknown.
class Said {
   public:
    explicit Said(const std::vector<std::string>& options) {
        for (const std::string& option : options) {
            const auto equals = option.find('=');
            if (equals == std::string::npos) throw Error(ExitCode::usage, option + " has no '='");
            values_[option.substr(0, equals)] = std::stod(option.substr(equals + 1));
        }
    }
    Said& read(const char* name, double& value) {
        if (const auto found = values_.find(name); found != values_.end()) {
            value = found->second;
            values_.erase(found);
        }
        return *this;
    }
    Said& read(const char* name, bool& value) {
        double number = value ? 1 : 0;
        read(name, number);
        value = number != 0;
        return *this;
    }
    void end() const {
        if (!values_.empty()) throw Error(ExitCode::usage, "unknown option " + values_.begin()->first);
    }

   private:
    std::map<std::string, double> values_;
};

template <typename Options>
Options adam_options(Said& said) {
    Options options;
    said.read("beta1", options.beta1).read("beta2", options.beta2).read("epsilon", options.epsilon);
    said.read("weight_decay", options.weight_decay).end();
    return options;
}

}  // namespace

std::unique_ptr<zero::Optimizer> named_optimizer(const std::string& name, const std::vector<std::string>& options) {
    Said said(options);
    if (name == "adamw") return make_adamw(adam_options<zero::AdamWOptions>(said));
    if (name == "adam") return make_adam(adam_options<zero::AdamOptions>(said));
    if (name == "sgd") {
        zero::SgdOptions sgd;
        said.read("momentum", sgd.momentum).read("dampening", sgd.dampening);
        said.read("weight_decay", sgd.weight_decay).read("nesterov", sgd.nesterov).end();
        return make_sgd(sgd);
    }
    if (name == "lion") {
        zero::LionOptions lion;
        said.read("beta1", lion.beta1).read("beta2", lion.beta2).read("weight_decay", lion.weight_decay).end();
        return make_lion(lion);
    }
    if (name == "adagrad") {
        zero::AdagradOptions adagrad;
        said.read("lr_decay", adagrad.lr_decay).read("weight_decay", adagrad.weight_decay);
        said.read("initial_accumulator", adagrad.initial_accumulator).read("epsilon", adagrad.epsilon).end();
        return make_adagrad(adagrad);
    }
    throw Error(ExitCode::usage, "unknown optimizer " + name);
}

}  // namespace penstock::oracle
