# The commands of dcs. `make help` lists them. Each sets up what it needs (tools/setup).

CARGO ?= cargo
FUZZ_SECONDS ?= 60
SOAK_MINUTES ?= 15

# How it is built: release; dist, which is slower to build and faster (`make dist`); dev.
PROFILE ?= release
# Where cargo leaves it.
BUILT = $(or $(CARGO_TARGET_DIR),target)/$(PROFILE:dev=debug)

# Where `make install` puts it; DESTDIR comes before all of them.
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
UNITDIR ?= $(PREFIX)/lib/systemd/system
PLACES = BUILT DESTDIR PREFIX BINDIR LIBDIR INCLUDEDIR MANDIR BASHDIR ZSHDIR FISHDIR UNITDIR

.PHONY: help build dist install uninstall deb demo workshop vm python test swift preload hdfs rtl gpu size lint fuzz soak bench bench-all report generate clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# WASM=yes: dcs runs users' own operators too, and is larger than it promises to be. Packages do.
WASM ?= no
FEATURES = --no-default-features $(if $(filter yes,$(WASM)),--features "dcs-cli/wasm dcs-capi/wasm")

build: ## the dcs command with dcs-csd, libdcs.so, libdcs.a and libdcs-preload.so, in target/release
	@tools/setup
	$(CARGO) build --profile $(PROFILE) --locked -p dcs-cli -p dcs-csd-cli -p dcs-capi -p dcs-preload $(FEATURES)
	tools/link-libraries $(BUILT)

dist: PROFILE = dist
dist: ## the same with link-time optimisation, in target/dist: a quarter of an hour
	@tools/setup
	$(CARGO) build --profile dist --locked -p dcs-cli -p dcs-csd-cli
	$(CARGO) rustc --profile dist --locked -p dcs-capi --crate-type cdylib,staticlib
	$(CARGO) rustc --profile dist --locked -p dcs-preload --crate-type cdylib
	tools/link-libraries $(BUILT)

install: ## what make build left, to PREFIX (/usr/local); make install PROFILE=dist: what make dist left
	@$(foreach place,$(PLACES),$(place)='$($(place))') tools/install install

uninstall: ## remove it from there
	@$(foreach place,$(PLACES),$(place)='$($(place))') tools/install uninstall

deb: dist ## Debian packages of it, in target/deb
	tools/deb

demo: ## the main job on real sockets, then on the card in a virtual server; checked byte for byte, figures side by side
	@tools/setup
	$(CARGO) build --release --locked -p dcs-bench --no-default-features
	target/release/dcs-bench demo
	@echo
	target/release/dcs-bench vm demo || { code=$$?; test $$code -eq 9; }

workshop: ## dcs-bench, the program behind dcs demo, dcs bench and dcs vm, in target/release (make demo leaves a smaller one)
	@tools/setup
	$(CARGO) build --profile $(PROFILE) --locked -p dcs-bench

vm: build workshop ## a shell in a virtual server with the card
	target/release/dcs vm shell

python: ## the wheel of the Python package, in target/wheels
	@tools/setup
	tools/python wheel

test: ## every test
	@tools/setup
	tools/check-core
	tools/test

size: ## dcs, as make build leaves it, stays below 15 MB
	@tools/setup
	$(CARGO) build --release --locked -p dcs-cli --no-default-features
	tools/check-size

swift: ## OpenStack Swift on the engine: Swift's own tests and ours on a cluster of its own, beside stock; a quarter of an hour
	@tools/setup
	integrations/swift/run tests

preload: ## libdcs-preload.so in nginx, lighttpd, vsftpd and Java, which are installed where that is allowed
	@tools/setup
	tools/setup-preload
	$(CARGO) test -p dcs-preload --locked -- --nocapture

hdfs: build ## HDFS's DataNodes on the engine, from Apache's jars: put, get, balancer, what digests cost; grep in the DataNode's blocks
	integrations/hdfs/setup
	integrations/hdfs/demo.py
	integrations/hdfs/grep.py --size 512 --runs 1

rtl: ## the engine in SystemVerilog: lint, benches, proofs, area, clock, to target/rtl; takes long
	@tools/setup
	tools/rtl all

gpu: build workshop ## on a machine with a GPU of NVIDIA's: what it computes against the CPU, and in which time, to target/gpu
	target/release/dcs doctor
	DCS_GPU=demand $(CARGO) test -p dcs-devices -p dcs-library --locked --test gpu real_gpu -- --nocapture
	mkdir -p target/gpu
	head -c 1G /dev/urandom >target/gpu/data
	target/release/dcs bench gpu --file target/gpu/data --svg target/gpu/gpu.svg --json >target/gpu/gpu.jsonl; code=$$?; rm target/gpu/data; cat target/gpu/gpu.jsonl; exit $$code

lint: ## formatting, clippy, dependency licences and advisories, what would be published, lengths and circles, the GPU's kernels
	@tools/setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	# As make build makes them. A test among them has cargo give dependencies the features that they have above.
	$(CARGO) clippy --workspace --no-default-features --lib --bins --test served --locked -- -D warnings
	tools/deny
	tools/package-check
	tools/check-house
	tools/gpu-kernels --check

fuzz: ## each fuzz target for FUZZ_SECONDS seconds (needs a nightly toolchain and cargo-fuzz)
	tools/fuzz $(FUZZ_SECONDS)

soak: ## guests with three kernels write at random to virtual drives and read back, SOAK_MINUTES minutes (15) each: an hour and more
	@tools/setup
	DCS_SOAK=$(SOAK_MINUTES) $(CARGO) test -p dcs-csd-cli --locked --test guests -- --nocapture --test-threads 1 fio_ drives_it

bench: workshop ## what the main jobs cost, beside what else could do them: a few minutes
	target/release/dcs-bench bench

bench-all: build workshop ## every job, with small objects, cold files and hogs, and object servers, to target/bench: two hours and more
	tools/bench-all

report: build workshop ## the papers' experiments beside the papers' figures, on one page: target/report/index.html
	tools/report

generate: ## include/dcs.h, rtl/dcs_pkg.sv, tables of docs/abi.md, fuzz seeds: from crates/abi; the GPU's kernels
	$(CARGO) run -q -p dcs-abi-gen
	tools/gpu-kernels

clean: ## remove what was built
	$(CARGO) clean
