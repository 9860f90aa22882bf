#!/bin/sh
# Runs before deb (remove) or rpm (0) takes the files away, and not in an upgrade.
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now tunnel-agent.service
	fi
	;;
esac
exit 0
