"""What starts work by itself: triggers, whose source is an event, and schedules, whose source is the clock."""
