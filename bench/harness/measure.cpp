#include "bench/harness/measure.h"

#include "aio/words/error.h"

#include <exception>
#include <ostream>

namespace penstock::bench {

namespace {

void write(const Report& report, ResultFormat format, std::ostream& out) {
    if (format == ResultFormat::json) {
        out << report.json() << '\n';
    } else {
        report.print(out);
    }
    out.flush();
}

ExitCode say(const char* what, ExitCode code, std::ostream& log) {
    log << "penstock: error: " << what << '\n';
    return code;
}

ExitCode end(Report& report, const char* what, ExitCode code, std::ostream& log) {
    report.fail(what);
    return report.quiet() ? code : say(what, code, log);
}

ExitCode fill(Report& report, const BenchRun& run, std::ostream& log) {
    try {
        add_machine_facts(report);
        run(report);
        return ExitCode::ok;
    } catch (const Error& error) {
        return end(report, error.what(), error.code(), log);
    } catch (const std::exception& error) {
        return end(report, error.what(), ExitCode::internal, log);
    }
}

}  // namespace

ExitCode measure(const std::string& verb, const BenchRun& run, ResultFormat format, std::ostream& out,
                 std::ostream& log) {
    Report report(verb);
    const ExitCode code = fill(report, run, log);
    if (report.quiet() || (code != ExitCode::ok && report.figures().empty())) return code;
    write(report, format, out);
    if (!out) {
        const ExitCode lost = say("cannot write the result to standard output", ExitCode::storage, log);
        return code == ExitCode::ok ? lost : code;
    }
    return code;
}

}  // namespace penstock::bench
