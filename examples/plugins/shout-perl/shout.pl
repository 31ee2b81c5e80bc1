#!/usr/bin/perl
# A kind of job in Perl: says a text in capitals, as often as asked for. See docs/reference/kinds/plugins.md.
use strict;
use warnings;
use JSON::PP;

$| = 1;    # each message is seen when it is written
my $json = JSON::PP->new->canonical->utf8;
sub say_message { print $json->encode({@_}), "\n" }

my $request = $json->decode(scalar <STDIN>);

if ($request->{type} eq "hello") {
    say_message(
        type        => "hello",
        api_version => 1,
        schema      => {
            type                 => "object",
            required             => ["text"],
            additionalProperties => JSON::PP::false,
            properties           => {
                text  => { type => "string", minLength => 1 },
                times => { type => "integer", minimum => 1, maximum => 1000 },
            },
        },
    );
    exit 0;
}

my $stopping = 0;
$SIG{TERM} = sub { $stopping = 1 };    # the run was cancelled: end soon

my $text  = $request->{payload}{text};
my $times = $request->{payload}{times} // 1;
for my $time (1 .. $times) {
    exit 1 if $stopping;
    if ($text eq "fail") {
        say_message(type => "fail", message => "I was told to fail", retry => JSON::PP::false);
        exit 0;
    }
    select undef, undef, undef, 1000 if $text eq "wait";
    say_message(type => "log", message => uc $text);
    say_message(type => "progress", percent => 100 * $time / $times, message => "$time of $times");
}
say_message(type => "result", value => { said => $times, attempt => $request->{attempt} });
