#include "trainer/ckpt/ckpt_command.h"

#include "aio/words/check.h"

#include <CLI/CLI.hpp>

#include <memory>

namespace penstock::trainer {
namespace {

constexpr auto example =
    "DIR is a store's directory (of several devices the first; the others follow with --also). NAME is a kept\n"
    "snapshot: its name, its step's number, or a path.\n"
    "Examples:\n"
    "  penstock ckpt ls /nvme/swap\n"
    "  penstock ckpt keep /nvme/swap best --to /archive/run7\n"
    "  penstock ckpt verify /nvme/swap best --kept /archive/run7 --json\n";

enum class Name { none, optional, required };

CLI::App* add(CLI::App& ckpt, CkptRequest& request, const char* verb, const char* description, Name name) {
    CLI::App* app = ckpt.add_subcommand(verb, description);
    app->add_option("DIR", request.directory, "directory of the store")->required();
    if (name != Name::none)
        app->add_option("NAME", request.name, "kept snapshot")
            ->required(name == Name::required)
            ->check([](const std::string& given) {
                // Else it would mean the store itself.
                return given.empty() ? std::string("the value is empty; give a snapshot or leave it out")
                                     : std::string();
            });
    app->add_flag("--json", request.json, "print one JSON object on standard output");
    return app;
}

void add_folder(CLI::App* app, CkptRequest& request, const char* option) {
    app->add_option(option, request.snapshot_folder, "folder of the kept snapshots, if it is not DIR/kept");
}

void add_devices(CLI::App* app, CkptRequest& request) {
    app->add_option("--also", request.also,
                    "a further directory of the store, in the order of its creation; may be repeated")
        ->allow_extra_args(false);
}

}  // namespace

std::function<CkptResult(Console&)> add_ckpt_verb(CLI::App& app) {
    CLI::App* ckpt = app.add_subcommand("ckpt", "List, show, verify, mend and keep what a training has committed");
    ckpt->require_subcommand(1);
    ckpt->footer(example);
    const auto request = std::make_shared<CkptRequest>();
    add_folder(add(*ckpt, *request, "ls", "What is committed in DIR, who uses it, and its kept snapshots", Name::none),
               *request, "--kept");
    add_folder(add(*ckpt, *request, "show", "Objects, tiles, hashes (--json) and client state", Name::optional),
               *request, "--kept");
    CLI::App* verify = add(*ckpt, *request, "verify", "Read every byte and compare its hash", Name::optional);
    add_folder(verify, *request, "--kept");
    add_devices(verify, *request);
    CLI::App* scrub = add(*ckpt, *request, "scrub", "Verify, and mend what can be mended without loss", Name::none);
    add_folder(scrub, *request, "--kept");
    add_devices(scrub, *request);
    scrub->add_option("--job", request->job, "run.name of the store's run, for a lock that is lost (penstock)");
    CLI::App* keep = add(*ckpt, *request, "keep", "Copy the newest generation to a snapshot NAME", Name::required);
    add_folder(keep, *request, "--to");
    add_devices(keep, *request);
    add_folder(add(*ckpt, *request, "rm", "Remove a kept snapshot", Name::required), *request, "--kept");
    return [ckpt, request](Console& console) {
        if (ckpt->got_subcommand("ls")) return ckpt_ls(*request);
        if (ckpt->got_subcommand("show")) return ckpt_show(*request);
        if (ckpt->got_subcommand("verify")) return ckpt_verify(*request, console);
        if (ckpt->got_subcommand("scrub")) return ckpt_scrub(*request, console);
        if (ckpt->got_subcommand("keep")) return ckpt_keep(*request, console);
        PENSTOCK_CHECK(ckpt->got_subcommand("rm"), "no verb of ckpt was given");
        return ckpt_rm(*request, console);
    };
}

}  // namespace penstock::trainer
